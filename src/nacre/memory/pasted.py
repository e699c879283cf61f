"""What of a message is the user's own: mails, files, quotes and code that they pasted are not."""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from typing import Any

from nacre.index.search_text import UNSPACED

# A message may be any text, of any length: each of these patterns takes a time in proportion to it.
_FENCE = re.compile(r"^[ \t]*(`{3,}+|~{3,}+|\"{3}|'{3})[^\n]*+\n.*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_OPENING = re.compile(r"(?P<before>^[ \t]*+)?<(?P<name>\w[\w.-]*+)(?:\s[^<>]*+)?>", re.MULTILINE)
_CLOSING = re.compile(r"</(\w[\w.-]*+)\s*+>")
# Tags that enclose nothing.
_BARE = ("br", "hr", "img", "input", "wbr")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
# Code as Markdown has it: lines that are indented and no list.
_INDENTED = re.compile(r"(?:^(?: {4}|\t)(?![ \t]*+(?:[-*+•]|\d+[.)])\s)[^\n]*+(?:\n|\Z)){2,}+", re.MULTILINE)
_QUOTED_LINE = re.compile(r"^[ \t]*[>|].*$", re.MULTILINE)
# The head of a mail, or who speaks in a conversation that was copied.
_HEADER = re.compile(
    r"^[ \t*]*(?:from|to|cc|date|sent|subject|reply-to|von|an|gesendet|datum|betreff|de|à|envoyé|objet|date"
    r"|para|enviado"
    r"|fecha|asunto|da|a|inviato|data|oggetto|assunto|van|aan|verzonden|onderwerp|från|till|skickat|ämne"
    r"|от|кому|отправлено|дата|тема|user|assistant|human|system)[ \t*]*:[ \t]*\S.*$",
    re.MULTILINE | re.IGNORECASE,
)
_FORWARDED = re.compile(
    r"^[ \t]*(?:-{3,}+.*?(?:original|forwarded|weitergeleitet|ursprüngliche|transféré|reenviado|message|nachricht).*"
    r"|begin forwarded message.*|anfang der weitergeleiteten.*|début du message.*"
    r"|(?:on|am|le|el)\b.{0,120}\b(?:wrote|schrieb|a écrit|escribió)\b.{0,80}:)[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
# "Here is the mail:", "he wrote:", and all that follows.
_INTRODUCED = re.compile(
    r"\b(?:(?:e-?mails?|mails?|letter|message|page|article|document|file|logs?|output|post|comment|ticket"
    r"|report|readme"
    r"|transcript|reply|response|nachricht|brief|seite|artikel|dokument|datei|bericht|courriel|lettre|article|fichier"
    r"|rapport|correo|carta|página|artículo|documento|archivo|informe|wrote|writes|says|said|reads|states"
    r"|schrieb|schreibt"
    r"|sagt|écrit|dit|escribió|escribe|dice|messaggio|lettera|pagina|articolo|scrive|scritto|mensagem|artigo|arquivo"
    r"|escreveu|escreve|disse|bericht|bestand|schreef|schrijft|meddelande|brev|artikeln|filen|skrev|skriver)[^\n:.!?]{0,60}:(?=\s)"
    r"|(?:following|below|this|text|note|folgende[nrs]?|dies|suivante?|ceci|siguiente"
    r"|esto|seguente|questo|seguinte|isto|volgende|dit|följande|detta)[^\n:.!?]{0,60}:(?=[ \t]*\n))"
    r"|(?:письм[оа]|сообщени[ея]|статья|документ|файл|пишет|написал[аи]?|сказал[аи]?"  # noqa: RUF001 - as they are written
    r"|邮件|郵件|信件|消息|文章|文件|日志|写道|說|说|メール|手紙|記事|文書|ファイル|메일|편지|기사|문서|رسالة|الرسالة|بريد|البريد|كتب|قال)"
    r"[^\n:：.!?。！？]{0,60}[:：]",  # noqa: RUF001 - the same
    re.IGNORECASE,
)
# "My new email: ada@example.com" introduces nothing.
_NOUN = re.compile(r"[\w-]+\s?:")
_MINE = re.compile(
    r"(?:(?:\A|[\n.!?,;])\s*|\b(?:my|our|meine?|unsere?|mon|ma|notre|mi|nuestr[ao])(?: \w+){0,2} )\Z", re.IGNORECASE
)
_ADDRESS = re.compile(r"[ \t]*(?:[\w.+-]{1,64}@[\w.-]{1,255}|https?://\S{1,2000})(?=\s|\Z)")
# Lines of a log or a chat begin with the time, in brackets or after the date.
_STAMPED = re.compile(
    r"^[ \t]*+(?:\[[^\]\n]{0,30}\d:\d\d[^\]\n]{0,12}\]|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}[T, ]{1,2}\d{1,2}:\d\d)",
    re.MULTILINE,
)
_SPEAKER = re.compile(r"^[ \t*]*+([^\W\d][^\n:]{0,30}):[ \t*]*+\S", re.MULTILINE)
# A change of files, a shell, and what stands below the line that ends a mail.
_COPIED = re.compile(r"^(?:diff --git |@@ -\d|\$ [^\W\d]|-- ?$)", re.MULTILINE)
_QUOTES = {
    "“": re.compile("”"),
    "„": re.compile("[“”]"),
    "«": re.compile("»"),
    "「": re.compile("」"),
    "『": re.compile("』"),
    "‘": re.compile(r"’(?!\w)"),  # noqa: RUF001 - as it is written
    "'": re.compile(r"'(?!\w)|\n"),
    '"': re.compile('["\n]'),
}
_QUOTE = re.compile("[“„«「『‘\"]|(?<!\\w)'(?=\\w)")  # noqa: RUF001 - the same
_LONG_QUOTE, _LONG_UNSPACED = 6, 10
_UNSPACED = re.compile(f"[{UNSPACED}]")
_TYPED, _PARAGRAPH = 2_000, 400


def split(text: str, places: Any = None) -> tuple[str, str]:
    """The user's own words in a message, and the rest; `places` are where it is known to be pasted, as stored."""
    own, pasted = text, list[str]()

    def take(found: re.Match[str]) -> str:
        pasted.append(found[0])
        return "\n"

    # 1. What the channel knows to be pasted.
    own = _without(own, _known_places(places, len(own)), pasted)
    # 2. What is marked in the text: blocks of code, files, quoted lines.
    own = _COMMENT.sub(take, _FENCE.sub(take, own))
    own = _without(own, _tagged_places(own), pasted)
    own = _INDENTED.sub(take, _QUOTED_LINE.sub(take, own))
    # 3. What begins like a mail, a chat or a log, or is introduced, goes on to the end.
    for find in (_mail_begins, _record_begins, _introduction_ends):
        if (start := find(own)) is not None:
            pasted.append(own[start:])
            own = own[:start]
    # 4. Quotes of more than a few words.
    own = _without(own, _quoted_places(own), pasted)
    # 5. Nobody types pages: of a very long message, the short paragraphs around it are the user's.
    if len(own) > _TYPED:
        paragraphs = re.split(r"\n\s*\n|\n(?=\S)", own)
        pasted += [paragraph for paragraph in paragraphs if len(paragraph) > _PARAGRAPH]
        short = [paragraph for paragraph in paragraphs if len(paragraph) <= _PARAGRAPH]
        if len("".join(short)) > _TYPED:
            pasted += short[1:-1]
            short = [short[0], short[-1]]
        own = "\n".join(short)
    return own.strip(), "\n".join(piece.strip() for piece in pasted if piece.strip())


def _without(text: str, places: list[tuple[int, int]], taken: list[str]) -> str:
    """A text with a line end for each of some places, which do not overlap and are in order."""
    kept, at = list[str](), 0
    for begin, end in places:
        kept.append(text[at:begin])
        taken.append(text[begin:end])
        at = end
    return "\n".join([*kept, text[at:]])


def _known_places(places: Any, length: int) -> list[tuple[int, int]]:
    """The places that a message has stored, in order; those that overlap are one."""
    valid = list[tuple[int, int]]()
    for place in places if isinstance(places, list) else []:
        match place:
            case [int(begin), int(end)]:
                valid.append((max(begin, 0), min(end, length)))
            case _:
                continue
    found = list[tuple[int, int]]()
    for begin, end in sorted(valid):
        if found and begin < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif begin < end:
            found.append((begin, end))
    return found


def _tagged_places(text: str) -> list[tuple[int, int]]:
    """From each tag to the one that closes it; one that nothing closes goes to the end if it begins a line."""
    closing: dict[str, list[tuple[int, int]]] = {}
    for tag in _CLOSING.finditer(text):
        closing.setdefault(tag[1].casefold(), []).append(tag.span())
    found, at = list[tuple[int, int]](), 0
    for tag in _OPENING.finditer(text):
        name, begin = tag["name"].casefold(), tag.start()
        if begin < at or name in _BARE:
            continue
        ends = closing.get(name, [])
        nearest = bisect(ends, (begin, begin))
        if nearest < len(ends):
            at = ends[nearest][1]
        elif tag["before"] is not None:
            at = len(text)
        else:
            # "List<String>" is no file that was pasted.
            continue
        found.append((begin, at))
    return found


def _quoted_places(text: str) -> list[tuple[int, int]]:
    """Quotes of more than a few words."""
    found, at = list[tuple[int, int]](), 0
    # Up to where nothing closes a quote that such a sign opens: each stretch is searched once.
    unclosed = dict[str, int]()
    while (opened := _QUOTE.search(text, at)) is not None:
        begin, at = opened.start(), opened.end()
        if begin < unclosed.get(opened[0], 0):
            continue
        closed = _QUOTES[opened[0]].search(text, at)
        if closed is None or closed[0] == "\n":
            unclosed[opened[0]] = closed.start() if closed is not None else len(text)
        elif closed.start() > at:
            at = closed.end()
            quote = text[begin:at]
            if len(quote.split()) >= _LONG_QUOTE or len(_UNSPACED.findall(quote)) >= _LONG_UNSPACED:
                found.append((begin, at))
    return found


def _mail_begins(text: str) -> int | None:
    """Where a mail was pasted: at a line that says so, or at two headers; None if there is none."""
    places = [found.start() for found in _FORWARDED.finditer(text)]
    headers = [found.start() for found in _HEADER.finditer(text)]
    return min([*places, *headers[:1]] if len(headers) > 1 else places, default=None)


def _record_begins(text: str) -> int | None:
    """Where a copied chat, log, change of files or shell begins; None if there is none."""
    places = [found.start() for found in _COPIED.finditer(text)]
    stamped = [found.start() for found in _STAMPED.finditer(text)]
    speakers = [(found.start(), found[1].strip().casefold()) for found in _SPEAKER.finditer(text)]
    # Somebody speaks again after somebody else; who lists what they have to say has each name once.
    names = Counter(name for _, name in speakers)
    is_chat = len(names) > 1 and max(names.values()) > 1
    return min(
        [*places, *(stamped[:1] if len(stamped) > 1 else ()), *([speakers[0][0]] if is_chat else ())], default=None
    )


def _introduction_ends(text: str) -> int | None:
    for found in _INTRODUCED.finditer(text):
        before = text[max(found.start() - 60, 0) : found.start()]
        if not (_NOUN.fullmatch(found[0]) and _MINE.search(before) and _ADDRESS.match(text, found.end())):
            return found.end() if text[found.end() :].strip() else None
    return None
