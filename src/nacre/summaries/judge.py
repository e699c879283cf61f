"""Whether what a model answered is a summary: no refusal, no nonsense, no orders, no echo, in any language."""

# The words of many languages have letters that look like others.
# ruff: noqa: RUF001

from __future__ import annotations

import re

from nacre.history.tokens import count, sizes
from nacre.summaries.prompt import RECORD, SAID, SYSTEM

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

# The beginning of an answer that is none, as models say it: "I cannot help", "I cannot summarise", with or without an
# apology. An apology alone is no refusal, nor is "I cannot come on Monday": summaries tell of both.
_APOLOGY = r"""
    (?:(?:i['’]m|i\ am|we['’]re|we\ are)\s)?(?:very\ |so\ |really\ |truly\ )?(?:sorry|afraid)\b
    | (?:i|we)\ apologi[sz]e\b | unfortunately\b | (?:es\ )?tut\ mir\ (?:sehr\ )?leid\b
    | entschuldig(?:ung|en\ sie)\b | leider\b
    | (?:je\ suis\ )?(?:vraiment\ )?désolée?\b | je\ m['’]excuse | malheureusement\b
    | lo\ (?:siento|lamento)\b | disculp[ae]\w* | lamentablemente\b | mi\ dispiace\b | spiacente\b | purtroppo\b
    | (?:me\ )?desculpe\b | sinto\ muito | lamento\b | infelizmente\b | het\ spijt\ me\b | helaas\b
    | jag\ är\ ledsen | tyvärr\b | beklager\b | undskyld\b | dessverre\b | desværre\b
    | (?:olen\ )?pahoillani | valitettavasti\b | przepraszam\b | przykro\ mi\b | niestety\b | omlouvám\ se
    | je\ mi\ líto | bohužel\b | sajnálom | sajnos\b | îmi\ pare\ rău | din\ păcate | üzgünüm | özür\ dilerim | maalesef
    | (?:tôi\ )?(?:rất\ )?xin\ lỗi | (?:mohon\ )?maaf\b | samahani
    | извините | простите | прошу\ прощения | к\ сожалению | вибачте | на\ жаль | λυπάμαι | συγγνώμη | δυστυχώς
    | (?:我|很|非常)*抱歉 | 对不起 | 對不起 | 不好意思 | 申し訳 | すみません | ごめん | 恐れ入りますが | 죄송 | 미안
    | (?:أنا\ )?آسف | عذر[اًا]+ | أعتذر | متأسف | ببخشید | معذرت | (?:אני\ )?מצטערת? | סליחה
    | क्षमा\ कर | माफ़\ कर | माफ\ कर | मुझे\ (?:खेद|माफ) | ขออภัย | ขอโทษ | দুঃখিত | மன்னிக்க
"""
_TELLING = r"\b(?:users?|said|says|wrote|told|nutzer|utilisateur|usuario|utente|usuário)\b|用户|用戶|利用者|사용자|ผู้ใช้"
"""Words with which a sentence tells what somebody else said."""
_GAP = rf"(?:(?!{_TELLING})[^.!?。！？।\n]){{0,60}}?"
"""What may stand between two words of one sentence."""
_REFUSING = rf"""
    \b(?:i|we)\ (?:can['’]?t|cannot|can\ not|won['’]t|will\ not|(?:am|are)\ (?:unable|not\ able)\ to|must\ decline\ to
      |have\ to\ decline)\ (?:\w+\ )?(?:(?:help|assist|comply|fulfil+|engage|participate)\b|summar
      |do\ (?:that|this|so)\b
      |(?:provide|continue|process|create|generate|produce|write|give|make|answer|respond|complete|keep)\b{_GAP}
      \b(?:summar\w*|records?|conversations?|requests?|questions?|content|discussions?|this|that)\b)
    | \bi\ (?:don['’]t|do\ not)\ (?:have\ (?:the\ ability|access\ to\ (?:the|this|that|your|any|previous)\b))
    | \bnot\ something\ i\ (?:can|am\ able\ to)\b
    | (?:\bich\ (?:kann|darf|werde)|\b(?:kann|darf|werde)\ ich)\b{_GAP}\bnicht\ (?:\w+\ )?(?:helfen|weiterhelfen
      |zusammenfassen|erstellen|beantworten|erfüllen|nachkommen|unterstützen|behilflich)
    | \bje\ (?:ne\ (?:peux|puis|suis)\ (?:\w+\ )?pas|suis\ incapable)\b{_GAP}(?:\b|['’])(?:aider|résumer|fournir
      |répondre|assister|satisfaire|donner\ suite|faire\ (?:cela|ça))\b
    | \bno\ (?:puedo|podré)\b{_GAP}\b(?:ayudar|asistir|resumir|cumplir|proporcionar|responder|hacer\ es[ot]o?)
    | \bnon\ (?:posso|sono\ in\ grado\ di)\b{_GAP}\b(?:aiutar|assister|riassumer|fornir|risponder|soddisfar|farlo)
    | \bnão\ (?:posso|consigo)\b{_GAP}\b(?:ajud|resum|fornec|cumpr|atend|respond|auxili|fazer\ isso)
    | \b(?:ik\ kan|kan\ ik)\b{_GAP}\bniet\b{_GAP}(?:helpen|samenvatten|voldoen|beantwoorden)
    | \b(?:jag\ kan|kan\ jag)\b{_GAP}\binte\b{_GAP}(?:hjälpa|sammanfatta|besvara|göra\ det)
    | \b(?:jeg\ kan|kan\ jeg)\b{_GAP}\bikke\b{_GAP}(?:hj[æe]lpe|op+summere|sammenfatte|besvare|g[øj]+re\ det)
    | \ben\ (?:voi|pysty)\b{_GAP}(?:autta|tiivist|vasta|tehdä)
    | \bnie\ (?:mogę|potrafię|jestem\ w\ stanie)\b{_GAP}(?:pom[óa]|streści|podsumow|spełni|odpowied|wykona)
    | \b(?:nemohu|nemůžu)\b{_GAP}(?:pomoc|pomoct|shrnout|poskytnout|splnit|odpovědět)
    | \bnem\ (?:segíthetek|tud(?:ok|om)\b{_GAP}(?:segít|összefoglal|teljesít|válaszol))
    | \bnu\ (?:\w+\ )?pot\b{_GAP}(?:ajut|rezum|furniz|răspund|îndeplin)
    | \b(?:yardımcı\ ola|yardım\ ede|özetleye|yanıtlaya|yapa|karşılaya)(?:mam|mıyorum|miyorum)
    | \b(?:tôi|mình)\ (?:\w+\ )?không\ thể\b{_GAP}\b(?:giúp|hỗ\ trợ|tóm\ tắt|cung\ cấp|thực\ hiện|trả\ lời)
    | \bsaya\ (?:tidak|tak)\ (?:bisa|dapat)\b{_GAP}\b(?:membantu|merangkum|meringkas|memberikan|memenuhi|menjawab)
    | \bsiwezi\ (?:kusaidia|kukusaidia|kufupisha|kujibu)
    | \bне\ (?:могу|смогу|в\ состоянии)\b{_GAP}(?:помо|выполн|обобщ|резюм|предостав|ответ|сдела\w+\ это)
    | \bне\ (?:можу|зможу)\b{_GAP}(?:допомог|викон|узагальн|надат|відпов)
    | \bδεν\ μπορώ\b{_GAP}(?:βοηθ|συνοψ|παρέχ|παράσχ|απαντ|εκπληρ)
    | (?:我(?:们|們)?(?:目前|暂时|暫時)?|(?<=[，,]))(?:无法|不能|無法|不会|不會){_GAP}
      (?:帮|幫|协助|協助|提供|完成|总结|總結|满足|滿足|回答|处理|處理)
    | (?:お手伝い|お応え|お答え|要約|対応|協力){_GAP}(?:できません|出来ません|しかねます)
    | (?:도와|도움|요약|응할|제공|답변|처리){_GAP}(?:수\ 없습니다|수\ 없어요|드리지\ 못)
    | (?:لا\ (?:أستطيع|يمكنني)|لن\ أتمكن){_GAP}(?:مساعد|أساعد|تلخيص|تقديم|تنفيذ|الإجابة)
    | (?:کمک|خلاصه|پاسخ){_GAP}نمی.?توانم | نمی.?توانم{_GAP}(?:کمک|خلاصه|پاسخ)
    | (?:לא\ יכולה?|איני\ יכולה?){_GAP}(?:לעזור|לסכם|לסייע|לספק|לענות)
    | (?:सहायता|मदद|सारांश|उत्तर){_GAP}(?:नहीं\ (?:कर|दे)\ सक|असमर्थ)
    | (?:(?:ฉัน|ผม|เรา)ไม่สามารถ|ไม่สามารถช่วย){_GAP}(?:ช่วย|สรุป|ให้ข้อมูล|ตอบ|ได้)
    | (?:সাহায্য|সহায়তা|সারাংশ){_GAP}(?:পারব|পারছি|পারি)\ না | (?:உதவ|சுருக்க){_GAP}(?:முடியாது|இயலாது)
"""
_REFUSAL = re.compile(
    rf"""
    (?:(?:{_APOLOGY})(?:[*_]*[.!。！]\s*|{_GAP}))?(?:{_REFUSING})
    | as\ an?\ (?:ai|artificial\ intelligence|large\ language\ model|language\ model)
      (?:\ language\ model|\ assistant|\ model)?,?\ (?:i|my|we)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
# A line that gives orders to the reader of the summary, instead of telling of somebody who did.
_ORDER = re.compile(
    r"""
    ^(?:[^\w\n]|_)*(?:(?:system|developer|admin|root)\b[^\n:]{0,20}:\s*)?
    (?:(?:please|now|important|attention|note|bitte|por\ favor)\b[\s,:!]*){0,2}
    (?:
      (?:ignore|disregard|forget|override)\b[^\n.]{0,30}?\b(?:previous|prior|above|earlier|preceding|system|your)\b
        [^\n.]{0,20}?\b(?:instructions?|prompts?|(?:rules|directions|guidelines|messages|context)\b
        (?!\ (?:about|for|from|of|on|in|regarding)\ (?!safety|security|privacy|access|permission|the\ system|your)))\b
      | (?:ignore|disregard|forget)\ (?:all|any)\ (?:of\ )?(?:the\ |your\ )?instructions\b
      | (?:ignorier(?:e|en\ sie)?|vergiss|vergessen\ sie|missachten?)\b(?=[^\n.]{0,60}(?:anweisung|instruktion))
        (?=[^\n.]{0,60}\b(?:alle|vorherig|bisherig|obig|früher|vorig|vorangegang))
      | (?:ignor(?:a|e|i|en|em|ad|ez|ate)|olvid(?:a|e|en|ad)|dimentic(?:a|ate)|esqueç(?:a|am)|oublie[sz]?
        |negeer|vergeet)\b(?=[^\n.]{0,60}(?:instru[ck]|instruç|istruzion|consigne))
        (?=[^\n.]{0,60}(?:anterior|previ|précédent|precedent|vorige|voorgaand|todas|toutes|tutte|alla|alle\b))
      | (?:про)?(?:игнорируй|забудь|ігноруй)\w*(?=[^\n.]{0,60}(?:инструкц|указани|інструкц))
        [^\n.]{0,40}?(?:все\b|всі\b|предыдущ|прежн|выше|систем|свои|твои|попередн|вище)
      | (?:zignoruj|ignoruj|zapomnij)\w*(?=[^\n.]{0,60}(?:instrukcj|polece))
        [^\n.]{0,40}?(?:wszystki|poprzedni|wcześniejsz|powyższ|system|swoj)
      | (?:请|請)?(?:忽略|无视|無視|忘记|忘記)(?=[^\n。]{0,20}(?:指令|指示|说明|說明|规则|規則|提示))
        [^\n。]{0,12}?(?:之前|以前|先前|此前|上述|以上|上面|前面|所有|一切|全部|系统|系統|你的)
      | (?=[^\n。「]{0,30}(?:これまで|今まで|以前|上記|前の|すべて|全て|全部|システム))
        [^\n。「は]{0,20}(?:指示|命令)(?:を|は)?(?:すべて|全て|全部)?(?:無視|忘れ)(?:し|て|る)
      | (?=[^\n."]{0,20}(?:이전|모든|위의|앞의|기존|시스템))
        (?:(?![은는]\s)[^\n."]){0,20}(?:지시|명령|지침)[^\n."]{0,8}무시(?:하|해)
      | (?:تجاهل|انس)(?=[^\n.]{0,30}(?:التعليمات|الأوامر))[^\n.]{0,40}?(?:جميع|كل|السابقة|أعلاه)
      | (?=[^\n.]{0,30}(?:पिछले|सभी|पूर्व|उपरोक्त))
        [^\n.]{0,30}(?:निर्देश|आदेश)[^\n.]{0,20}(?:अनदेखा|नज़रअंदाज़)\ कर(?:ें|ो)
      | (?:önceki|yukarıdaki)[^\n.]{0,30}(?:talimat|komut)[^\n.]{0,20}(?:yok\ say|unut|görmezden\ gel)
      | (?:bỏ\ qua|abaikan)(?=[^\n.]{0,40}(?:hướng\ dẫn|chỉ\ dẫn|instruksi|perintah))
        [^\n.]{0,50}?(?:trước|tất\ cả|ở\ trên|semua|sebelumnya|di\ atas)
    )
    | ^(?:[^\w\n]|_)*(?:system|developer)\s*:\s*
      (?:you\ (?:are|must|will|should)|new\ instructions|from\ now\ on|the\ user\ agreed)
    | <\|(?:im_start|im_end|system|user|assistant|start_header_id|eot_id|endoftext)\b | ^[ \t]*\[/?INST\] | <<SYS>>
    """,
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
_SPEAKER = re.compile(r"(?:user|assistant|result of [^\n:]{1,80}|assistant calls [^\n:]{1,80}): .+", re.MULTILINE)
_LABEL = re.compile(r"(?:the )?(?:new |updated )?(?:record|summary)[^\n:.]{0,20}:\s*", re.IGNORECASE)
_MARKS = "*_#>-` \t\n"
_OPENING = {'"': '"', "“": "”", "„": "“", "«": "»", "「": "」", "『": "』"}


def complaint(summary: str, *, tokens: int, said: str = "") -> str:
    """What is wrong with a summary that a model made of `said`, within a limit of tokens; "" if nothing is."""
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
    """Tell whether an answer is the question again, or the conversation as it was given."""
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
    # Words are recognised by their beginnings: many languages put the rest to other uses.
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
