"""Whether what a model answered is a summary: no refusal, no nonsense, no orders, no echo, in any language."""

# The words of many languages have letters that look like others.
# ruff: noqa: RUF001

from __future__ import annotations

import re

from nacre.history.summarising import RECORD, SAID, SYSTEM
from nacre.history.tokens import count, sizes

_SHORTEST, _MANY, _REPEATED = 8, 60, 8
_FEW_WORDS = 6
_SENSE = 0.05
"""The share of words that must be known, from the conversation or as the small words of some language."""
_SAME_LANGUAGE = 0.1
"""With such a share of small words that the conversation has too, a summary is in its language."""
_TELLING_WORDS = 100
"""With so many different words in a conversation, a summary has one of them."""
_COPIED = 3

_WORD = re.compile(r"[^\W\d_]{2,}")
_SMALL_WORDS = frozenset(
    """
    the and of to in is was that for with not are it on as has have by he she they user
    der die das und ist nicht ein eine zu mit von auf den dem hat sich für wird
    le la les et est de des un une que pour pas du dans sur avec il elle
    el los las es en por con para se no una su lo del al más
    di che per non sono gli si della nel con
    os as do da em um uma não mais foi com na no ao
    het een en van dat niet met voor zijn op te
    och att det som på är inte för av den til og ikke er til med
    on ei että ja se oli joka
    nie się na do jest że to jak oraz przez
    na se je že to jsou pro by
    ve bir bu için ile de da olarak
    và của là có cho không được người
    dan yang di untuk dengan dari ini itu tidak
    és az egy nem hogy van
    și în la nu cu pe care
    и в не на что он она по из за был это как от для
    і й та у не на що це з до
    και το να η ο του της με για που στο δεν
    في من على أن إلى عن هذا التي لا ما
    של את על לא זה הוא עם גם כי אל
    है के में की का को से और ने पर नहीं यह
    در به از که این را با است و برای
    এবং এর যে না করে জন্য
    """.split()  # noqa: SIM905 - a line for each language
)
"""Small words of many languages, each in its line."""

# The beginning of an answer that is none, as models say it: an apology with a refusal, not a summary that tells of one.
_REFUSAL = re.compile(
    r"""
    (?: (?:(?:i['’]m|i\ am|we['’]re|we\ are)\s)?(?:very\ |so\ |really\ |truly\ )?(?:sorry|afraid)\b
      | (?:i|we)\ apologi[sz]e\b | unfortunately,?\ (?:i|we)\b )
      .{0,80}?\b(?:can['’]?t|cannot|can\ not|unable|not\ able|won['’]t|will\ not|don['’]t|do\ not)\b
    | (?:i|we)\ (?:can['’]?t|cannot|can\ not|won['’]t|will\ not|am\ unable\ to|am\ not\ able\ to|must\ decline\ to
      |have\ to\ decline)\ (?:\w+\ )?(?:help|assist|summar|comply|provide|fulfil|continue|process|create|generate
      |produce|engage|answer|respond|participate|do\ (?:that|this|so))
    | as\ an?\ (?:ai|artificial\ intelligence|large\ language\ model|language\ model)
      (?:\ language\ model|\ assistant|\ model)?,?\ (?:i|my|we)\b
    | (?:es\ )?tut\ mir\ (?:sehr\ )?leid\b | entschuldigung, | entschuldigen\ sie | leider\ (?:kann|darf)\ ich\b
      | ich\ (?:kann|darf|werde)\b.{0,40}\bnicht\ (?:helfen|zusammenfassen|erstellen|beantworten|erfüllen)
    | (?:je\ suis\ )?(?:vraiment\ )?désolée?\b | je\ ne\ peux\ pas\b | je\ ne\ suis\ pas\ en\ mesure | je\ m['’]excuse
    | lo\ (?:siento|lamento)\b | disculp[ae] | no\ puedo\ (?:ayudar|resumir|cumplir|proporcionar|hacer|continuar)
    | mi\ dispiace\b | non\ posso\ (?:aiutar|riassumer|fornir|far) | spiacente\b
    | (?:me\ )?desculpe | sinto\ muito | lamento,?\ (?:mas|não) | não\ posso\ (?:ajudar|resumir|fornecer|fazer|cumprir)
    | het\ spijt\ me\b | sorry,\ maar\ ik | jag\ är\ ledsen | tyvärr\ kan\ jag | beklager\b | undskyld\b
      | (?:olen\ )?pahoillani | valitettavasti\ en
    | przepraszam\b | przykro\ mi\b | niestety\ nie\ mogę | omlouvám\ se | je\ mi\ líto | sajnálom | îmi\ pare\ rău
    | üzgünüm | özür\ dilerim | xin\ lỗi | (?:mohon\ )?maaf,?\ (?:saya|tapi|tetapi) | samahani
    | извините | простите | прошу\ прощения | к\ сожалению,?\ я\ не | я\ не\ могу\ (?:помочь|выполнить|обобщить|сделать)
      | вибачте | на\ жаль,?\ я\ не | λυπάμαι | συγγνώμη | δυστυχώς\ δεν\ μπορώ
    | (?:很|非常|我很)?抱歉 | 对不起 | 對不起 | 不好意思
      | 我(?:无法|不能|無法|不会)(?:帮|幫|协|協|提供|完成|总结|總結|满足|滿足|回答|继续|繼續)
    | 申し訳 | すみません | ごめん | 恐れ入りますが | 죄송 | 미안 | 도와드릴\ 수\ 없
    | (?:أنا\ )?آسف | عذر[اًا] | أعتذر | لا\ أستطيع | لا\ يمكنني | متأسف | ببخشید | معذرت
    | (?:אני\ )?מצטער | סליחה | איני\ יכול | क्षमा\ कर | माफ़\ कर | माफ\ कर | मुझे\ (?:खेद|माफ) | ขออภัย | ขอโทษ
      | দুঃখিত | மன்னிக்க
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
# A line that gives orders to whoever reads the summary, instead of telling of somebody who did.
_ORDER = re.compile(
    r"""
    ^[\W_]*(?:(?:system|developer|admin|root)\b[^\n:]{0,20}:\s*)?
    (?:(?:please|now|important|attention|note|bitte|por\ favor)\b[\s,:!]*){0,2}
    (?:
      (?:ignore|disregard|forget|override)\b[^\n.]{0,30}?\b(?:previous|prior|above|earlier|preceding|system|your)\b
        [^\n.]{0,20}?\b(?:instructions?|prompts?|rules|directions|guidelines|messages|context)\b
      | (?:ignore|disregard|forget)\ (?:all|any)\ (?:of\ )?(?:the\ |your\ )?instructions\b
      | (?:ignorier|vergiss|missachte)\w*(?=[^\n.]{0,60}(?:anweisung|instruktion))
        (?=[^\n.]{0,60}\b(?:alle|vorherig|bisherig|obig|früher|vorig|vorangegang))
      | (?:ignor|olvid|dimentic|esqueç|oubli|negeer|vergeet)\w*(?=[^\n.]{0,60}(?:instru[ck]|instruç|istruzion|consigne))
        (?=[^\n.]{0,60}(?:anterior|previ|précédent|precedent|vorige|voorgaand|todas|toutes|tutte|alla|alle\b))
      | (?:про)?(?:игнорируй|забудь|ігноруй)\w*[^\n.]{0,40}?(?:инструкц|указани|інструкц)
      | (?:zignoruj|ignoruj|zapomnij)\w*[^\n.]{0,40}?(?:instrukcj|polece)
      | (?:请|請)?(?:忽略|无视|無視|忘记|忘記)[^\n。]{0,20}(?:指令|指示|说明|說明|规则|規則|提示)
      | [^\n。「]{0,20}(?:指示|命令)(?:を|は)?(?:すべて|全て|全部)?(?:無視|忘れ)(?:し|て|る)
      | [^\n."]{0,20}(?:지시|명령|지침)[^\n."]{0,8}무시(?:하|해)
      | (?:تجاهل|انس)[^\n.]{0,30}(?:التعليمات|الأوامر)
      | [^\n.]{0,30}(?:निर्देश|आदेश)[^\n.]{0,20}(?:अनदेखा|नज़रअंदाज़)\ कर(?:ें|ो)
      | (?:önceki|yukarıdaki)[^\n.]{0,30}(?:talimat|komut)[^\n.]{0,20}(?:yok\ say|unut|görmezden\ gel)
      | (?:bỏ\ qua|abaikan)[^\n.]{0,40}(?:hướng\ dẫn|chỉ\ dẫn|instruksi|perintah)
    )
    | ^[\W_]*(?:system|developer)\s*:\s*
      (?:you\ (?:are|must|will|should)|new\ instructions|from\ now\ on|the\ user\ agreed)
    | <\|(?:im_start|im_end|system|user|assistant|start_header_id|eot_id|endoftext)\b | ^\s*\[/?INST\] | <<SYS>>
    """,
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
_SPEAKER = re.compile(r"(?:user|assistant|result of [^\n:]{1,80}|assistant calls [^\n:]{1,80}): .+", re.MULTILINE)
_LABEL = re.compile(r"(?:the )?(?:new |updated )?(?:record|summary)[^\n:.]{0,20}:\s*", re.IGNORECASE)
_MARKS = "*_#>-` \t\n"
_OPENING = {'"': '"', "“": "”", "„": "“", "«": "»", "「": "」", "『": "』"}


def complaint(summary: str, *, tokens: int, said: str = "") -> str:
    """What is wrong with a summary that a model made of `said`, of at most so many tokens; "" if nothing is."""
    size = count(summary)
    if size < _SHORTEST or not any(map(str.isalpha, summary)):
        return f"it is almost empty: {summary!r:.80}"
    if size > tokens:
        return f"it has about {size} tokens; the maximum is {tokens}"
    if found := _ORDER.search(summary):
        return f"it gives orders: {found[0].strip()!r:.80}"
    faults = (
        (_is_loop, "it repeats itself"),
        (_is_refusal, "it is a refusal"),
        (lambda text: _is_echo(text, said), "it repeats what the model was asked"),
        (lambda text: not _makes_sense(text, said), "it has nothing to do with the conversation"),
    )
    return next((f"{fault}: {summary!r:.80}" for is_wrong, fault in faults if is_wrong(summary)), "")


def _is_loop(summary: str) -> bool:
    words = re.findall(r"\w+", summary.casefold())
    return len(words) > _MANY and len(set(words)) * _REPEATED < len(words)


def _is_refusal(summary: str) -> bool:
    """Tell whether an answer begins with a refusal in the model's own voice; a summary may begin with a quoted one."""
    text = summary.lstrip(_MARKS)
    if (label := _LABEL.match(text)) is not None:
        text = text[label.end() :].lstrip(_MARKS)
    if text and text[0] in _OPENING:
        end = text.find(_OPENING[text[0]], 1)
        if 0 <= end < len(text) - 1:
            return False
        text = text[1:]
    return _REFUSAL.match(text) is not None


def _is_echo(summary: str, said: str) -> bool:
    """Tell whether an answer is the question again, or the conversation as it was told."""
    if summary.startswith(RECORD) or f"\n{SAID}" in f"\n{summary}" or SYSTEM[:60] in summary:
        return True
    lines = [line for line in summary.splitlines() if line.strip()]
    copied = sum(1 for line in lines if _SPEAKER.fullmatch(line) and line in said)
    return copied >= _COPIED and 2 * copied > len(lines)


def _makes_sense(summary: str, said: str) -> bool:
    """Tell whether an answer is in words, and shares some with a conversation that has many.

    Text in another script than the conversation is taken on trust if it is not Latin, and so is text without spaces.
    """
    words = [word.casefold() for word in _WORD.findall(summary)]
    script, other = _main_script(summary), _main_script(said)
    if len(words) < _FEW_WORDS or script in _UNSPACED or script not in {other, "latin"}:
        return True
    # Words are told by their beginnings: many languages put the rest to other uses.
    length = 2 if script == "hangul" else 5
    spoken = {word.casefold() for word in _WORD.findall(said)}
    heard = {word[:length] for word in spoken}
    if sum(1 for word in words if word in _SMALL_WORDS or word[:length] in heard) < max(_SENSE * len(words), 1):
        return False
    telling = {word for word in heard - _SMALL_WORDS if len(word) >= min(length, _TELLING_LETTERS)}
    shared = sum(1 for word in words if word in _SMALL_WORDS and word in spoken)
    if len(telling) < _TELLING_WORDS or script != other or shared < _SAME_LANGUAGE * len(words):
        return True
    numbers = set(re.findall(r"\d+", said))
    return any(word[:length] in telling for word in words) or not numbers.isdisjoint(re.findall(r"\d+", summary))


_TELLING_LETTERS = 4
_UNSPACED = frozenset({"han", "kana", "thai", "lao", "khmer", "myanmar", "tibetan"})


def _main_script(text: str) -> str:
    """What most of a text is written in."""
    found = sizes(text)
    main = max(found, key=lambda script: found[script], default="latin")
    return "latin" if main in {"accented", "digits", "eastern", "vietnamese"} else main
