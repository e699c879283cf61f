"""Whether a sentence tells an assistant how to work, and how much it says.

"I'm here for you", "never give up!" and "you should be proud" have the words of an instruction and are none: most of
what people say to each other is not about work. Told by patterns: English well, the commonest forms of other languages.
"""

# The words of many languages have letters that look like others.
# ruff: noqa: RUF001

from __future__ import annotations

import re

_NOT = r"(?:never|not|n['’]t)"
# What a sentence may begin with before it comes to the point.
_LEAD = (
    r"^\W*(?:(?:please|also|and|but|so|ok(?:ay)?|oh|well|now|then|btw|by the way|one more thing|important|note|rules?"
    r"|reminder|again|yes|no|hey|hi|hello|thanks|bitte|und|aber|also|s['’]il (?:te|vous) plaît|por favor|per favore"
    r"|пожалуйста)\b[\s,:!.–-]*){0,3}"
)
# Orders that need nothing else to be recognised.
_ORDER = re.compile(
    _LEAD + r"(?:always(?! \w+ing\b| (?:up|here|there|been|good|nice|great|a|the|so)\b)"
    r"|never(?! (?:saw|seen|had|been|heard|done|knew|known|thought|felt|tried|met)\b)|don['’]t|do not|make sure"
    r"|be sure|ensure|remember (?:to|that)|only|avoid|refrain|no more)\b",
    re.IGNORECASE,
)
# Orders that hold from now on if a word says so: "use tabs" is a task, "use tabs everywhere" is a rule.
_TASK = re.compile(
    _LEAD + r"(?:use|write|answer|reply|respond|speak|format|name|sign|prefix|put|run|ask|give|send|check|treat|assume"
    r"|leave|skip|ignore|include|limit|translate|keep|stop|say|start|end|begin|add|commit|test|let|refer|follow)\b",
    re.IGNORECASE,
)
# Requests that are recognised in any place of a sentence.
_REQUEST = re.compile(
    r"\bfrom (?:now|here|today|this point)\b(?: on)?|\bgoing forward\b|\bin (?:the )?future,|\buntil further notice\b"
    rf"|\byou (?:must|may|should|shall|can)(?:\s*{_NOT})\b|\byou (?:must|should|have to|need to)\b"
    rf"|\byou are (?:not )?(?:allowed|supposed) to\b|\b(?:must|should|may|shall)\s*{_NOT}\b|\b(?:must|should) always\b"
    r"|\bi(?:['’]d| would)? (?:rather )?prefer\b|\bi(?:['’]d| would)? (?:want|need|expect|like) you to\b"
    rf"|\bi (?:do {_NOT}|don['’]t) want (?:you|any)\b|^\W*when(?:ever)? you\b|\bevery time (?:you|i)\b|\bunless i\b"
    r"|\bask me (?:first|before|instead)\b|\bwithout (?:asking|telling) me\b",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"\b(?:call|address) me (?!back|later|when|if|at|on|tomorrow|crazy|a )\w+|\bmy name is\b", re.IGNORECASE
)
_STANDING = re.compile(
    r"\b(?:always|never|every|each|all|any|anything|only|from (?:now|here|today) on|going forward|in future|not"
    r"|don['’]t|without|unless|until|instead|at most|at least|no more|whenever|when|by default|before|must"
    r"|everywhere)\b|n['’]t\b",
    re.IGNORECASE,
)
# What assistants work with; a sentence with none of it is hardly addressed to one.
_WORK = re.compile(
    r"\b(?:answer|repl(?:y|ies)|respon[ds]|writ[ei]|read|use[sd]?\b|run|test|commit|push|branch|file|folder|director"
    r"|path|code|function|variable|comment|message|format|table\b|markdown|json|language|english|french|german|spanish"
    r"|chinese|dates?\b|unit|kilomet|miles?\b|decimal|currenc|nam(?:e|ing)|sentence|paragraph|emoji|punctuat|semicolon"
    r"|comma|tabs?\b|indent|quot|link|sourc|cite|translat|summar|explain|guess|ask|unsure|confirm|approv|delet|remov"
    r"|overwrit|install|deploy|send|e-?mail|invoice|order|schedul|server|database|secret|password|token|production"
    r"|version|releas|merg|pull request|review|document|report|heading|bullet|style|tone\b|formal|short|brief|concise"
    r"|length|tool|command|shell|search|browser|pages?\b|prompt|project|ticket|script|api\b|config|logs?\b)",
    re.IGNORECASE,
)
# What people say to each other.
_TALK = re.compile(
    r"\b(?:worr(?:y|ies)|proud|give up|giving up|gave up|hesitat|afraid|shy|yourself|ourselves|care of|fun\b|enjoy"
    r"|luck|hope|love|loving|dream|amazing|awesome|incredible|beautiful|wonderful|believ|heart|happ(?:y|iness)"
    r"|keep it up|keep going|let me know|stay (?:strong|positive|true|safe)|follow your|here for|there for|support"
    r"|inspir|congrat|cheer|feel|forget (?:me|us|how|the)|know(?:s|n)? (?:what|how|the|if)|friend|famil|kids|mom\b"
    r"|dad\b|life\b|thank|glad|excit|cool|mind\b|blame|miss(?:es|ed)?\b|alone|stress|relax|rest\b|journey|passion"
    r"|grateful)|\bmust(?:['’]ve| have| be| feel)\b|\byou never know\b",
    re.IGNORECASE,
)
_ABOUT_OTHERS = re.compile(
    r"^\W*(?:he|she|it|they|we|that|this|there|those|these|my|his|her|their|our|who|i|i['’](?:m|ve|ll)|[a-z]+['’]s)\b",
    re.IGNORECASE,
)
_OTHER_LANGUAGES = re.compile(
    r"\b(?:ab (?:jetzt|sofort|heute)|künftig|in zukunft|merke? dir|nenne? mich|(?:du|sie) (?:sollst|musst|darfst"
    r"|sollen|müssen|dürfen))\b|^\W*(?:bitte )?(?:antworte|schreib|benutz|verwende|nutze|nimm|mach|frag|gib|lösch|sag"
    r"|halte|achte|lass|nenn)\w*\b.*\b(?:immer|nie|niemals|nur|nicht|kein\w*|stets|alle\w*|jede\w*)\b"
    r"|^\W*(?:bitte )?(?:immer|niemals|nie)\b|\b(?:désormais|dorénavant|à partir de maintenant|appelle-moi|tu dois"
    r"|vous devez)\b|^\W*(?:ne |n['’])\w+|^\W*(?:répond|écri|utilis|évite|fai[st]|demand)\w*\b.*\b(?:toujours|jamais"
    r"|pas|tou(?:s|te|tes)|chaque|seulement)\b|\b(?:de ahora en adelante|a partir de ahora|llámame|(?:no )?debes)\b"
    r"|^\W*(?:nunca|siempre)\b|^\W*no (?:uses|utilices|hagas|escribas|toques|borres|digas|envíes|respondas|cambies"
    r"|olvides)\b|^\W*(?:responde|escribe|usa|utiliza|evita|pregunta)\w*\b.*\b(?:siempre|nunca|s[oó]lo|tod[oa]s|cada"
    r"|no)\b|\b(?:d['’]ora in poi|chiamami|de agora em diante|a partir de agora|me chame|você (?:não )?deve|vanaf nu"
    r"|van nu af)\b|^\W*(?:non|sempre|não|altijd|nooit|zawsze|nigdy|her zaman|asla)\b|\b(?:отныне|впредь"
    r"|с этого момента|называй меня|запомни|ты (?:должен|должна))\b|^\W*(?:всегда|никогда)\b|^\W*(?:отвечай|пиши"
    r"|используй|спрашивай)\w*\b.*\b(?:всегда|никогда|только|не|все)\b|以后|從現在|从现在|今后|记住|記住|总是|始终"
    r"|务必|必须|必須|不要|不得|禁止|只能|叫我|每次|今後|必ず|しないで|してはいけ|と呼んで|앞으로|항상|반드시|절대"
    r"|하지 ?마|من الآن فصاعدا|دائما|لا تستخدم|يجب أن|हमेशा|कभी नहीं",
    re.IGNORECASE,
)


def weigh(sentence: str) -> int:
    """How much a sentence says about how to work: 0 if it is no instruction, 5 if it is plainly one."""
    if sentence.rstrip().endswith(("?", "？")):
        return 0
    if _NAME.search(sentence):
        return 4
    if _OTHER_LANGUAGES.search(sentence):
        return 3
    is_work, is_standing = bool(_WORK.search(sentence)), bool(_STANDING.search(sentence))
    is_order = _ORDER.search(sentence) or (is_standing and _TASK.search(sentence))
    if not _REQUEST.search(sentence) and (not is_order or _ABOUT_OTHERS.search(sentence)):
        return 0
    is_talk, is_loud = bool(_TALK.search(sentence)), sentence.rstrip().endswith("!")
    weight = 1 + 2 * is_work + 2 * is_standing - is_loud - 2 * is_talk
    return weight if weight >= _LEAST else 0


_LEAST = 3
