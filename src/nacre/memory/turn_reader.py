"""The turns of a conversation: what was asked and answered, taken from its live messages or from all that were said."""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from nacre.history.pairing import PASTED
from nacre.index.search_text import UNSPACED
from nacre.memory.store import Cursor
from nacre.messages import Entry, Message
from nacre.sessions import Sessions

_ATTACHED = ("<file name=", "The user ran a command in their shell")
_WINDOWS = (64, 4096)


class Turn(Struct, frozen=True, kw_only=True):
    """Words of a user and the answer to them: the numbers of the first and the last message, and when it ended.

    `own` of what was asked are the user's own words, and `pasted` the rest. `outside` says whether the conversation
    had words of neither user nor assistant in it by then, which the assistant may repeat.

    `id` tells it from every other turn, in whatever session it is found: a fork shares it, and a history that
    is stored again repeats it.
    """

    id: str
    key: str
    n: int
    upto: int
    asked: str
    answered: str
    at: datetime
    own: str = ""
    pasted: str = ""
    outside: bool = False

    @property
    def said(self) -> str:
        return f"{self.asked}\n{self.answered}"


Numbered = tuple[int, Message]


def turns_after(sessions: Sessions, key: str, cursor: Cursor | None, *, outside: bool = False) -> list[Turn]:
    """The turns after a cursor, oldest first; those that were undone are not among them.

    `outside` is what the last turn before them was.
    """

    def read(messages: list[Numbered], at: int) -> list[Turn]:
        before = outside or any(_is_outside(message) for _, message in messages[:at])
        return list(turns(key, messages[at:], outside=before))

    for last in _WINDOWS:
        now = sessions.snapshot(key, last=last)
        messages = list(zip(now.numbers, now.messages, strict=True))
        # The header is record 1.
        reaches = bool(messages) and messages[0][0] == 2  # noqa: PLR2004
        if messages and cursor is not None and cursor.n:
            # The live messages must go back to the cursor, in the same generation of the session.
            reaches = messages[0][0] <= cursor.n and utc_text(_created(messages[0][1])) <= cursor.at
        if reaches:
            return read(messages, sum(n <= (cursor.n if cursor is not None else 0) for n, _ in messages))
        if now.live <= last:
            break
    # Something was truncated, summarised, undone or archived before it was gone through: read all of it.
    messages = _read_all(sessions, key)
    if cursor is None:
        return read(messages, 0)
    # The place of the cursor's message, or its time if that is lost.
    for at in range(len(messages) - 1, -1, -1):
        n, message = messages[at]
        if n == cursor.n and utc_text(_created(message)) == cursor.at:
            return read(messages, at + 1)
    return [turn for turn in read(messages, 0) if utc_text(turn.at) >= cursor.at]


def turn_at(sessions: Sessions, key: str, n: int, at: str = "") -> Turn | None:
    """The turn that a message belongs to, undone or not; None if the session is gone."""
    messages = ((stored.n, stored.message) for stored in sessions.transcript(key))
    found = [turn for turn in turns(key, messages) if turn.n <= n <= turn.upto]
    return next(reversed([turn for turn in found if utc_text(turn.at) == at] or found), None)


def turns(key: str, messages: Iterable[Numbered], *, outside: bool = False) -> Iterator[Turn]:
    """Whole turns: from a user's words to the answer without calls; the last one may not have ended."""
    asked: list[Numbered] = []
    for n, message in messages:
        outside = outside or _is_outside(message)
        if message.role == "user":
            asked.append((n, message))
        elif asked and message.role == "assistant" and not message.tool_calls:
            words = "\n".join(text_of(one.content) for _, one in asked)
            answered = text_of(message.content)
            parts = (utc_text(_created(asked[0][1])), words, answered)
            split = [_words(one) for _, one in asked]
            yield Turn(
                id=blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=8).hexdigest(),
                key=key,
                n=asked[0][0],
                upto=n,
                asked=words,
                answered=answered,
                at=_created(message),
                own="\n".join(own for own, _ in split),
                pasted="\n".join(rest for _, rest in split if rest),
                outside=outside,
            )
            asked = []


def _is_outside(message: Message) -> bool:
    """Tell whether a message has words that are not those of the user or the assistant."""
    return message.role == "tool" or (message.role == "user" and bool(_words(message)[1]))


def _words(message: Message) -> tuple[str, str]:
    """The user's own words in a message, and the rest: files and output of commands are parts before the words."""
    if not isinstance(message.content, list):
        return split_own(text_of(message.content), message.extra.get(PASTED))
    own, rest = list[str](), list[str]()
    texts = [_piece(part) for part in message.content]
    for at, text in enumerate(texts):
        if text.startswith(_ATTACHED):
            rest.append(text)
            continue
        typed, other = split_own(text, message.extra.get(PASTED) if at == len(texts) - 1 else None)
        own.append(typed)
        rest += [other] if other else []
    return "\n".join(own), "\n".join(rest)


def text_of(content: Any) -> str:
    """The words of a message; what is not words is named."""
    return content if isinstance(content, str) else "\n".join(map(_piece, content or ()))


def utc_text(time: datetime) -> str:
    """A time as memory spells it, in UTC."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def _created(message: Message) -> datetime:
    return message.created or datetime.fromtimestamp(0, UTC)


def _piece(part: Any) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else "[something that is not text]"


def _read_all(sessions: Sessions, key: str) -> list[Numbered]:
    """Every message of a session, truncated and summarised ones too, but not those that were undone."""
    generations: dict[str, list[Entry]] = {}
    for entry in sessions.records(key):
        generations.setdefault(entry.generation, []).append(entry)
    found: list[Numbered] = []
    for entries in generations.values():
        # 1. Follow the head of the branch through messages, undoing and rewinding; a message continues the head.
        head: Entry | None = None
        before: dict[int, Entry | None] = {}
        after: dict[int, Entry | None] = {}
        for entry in entries:
            if entry.kind == "msg":
                before[entry.n], head = head, entry
            elif entry.kind == "head" and "pop" in entry.data:
                head = before[head.n] if head is not None else None
            elif entry.kind == "head":
                head = after.get(entry.data.get("to", 0))
            after[entry.n] = head
        # 2. From the last head back to the first message.
        messages: list[Numbered] = []
        while head is not None:
            message = msgspec.convert(head.data, Message)
            messages.append((head.n, msgspec.structs.replace(message, created=message.created or head.ts)))
            head = before[head.n]
        found += messages[::-1]
    return found


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
    r"^[ \t*]*(?:from|to|cc|date|sent|subject|reply-to|von|an|gesendet|datum|betreff|de|à|envoyé|objet|date|para"
    r"|enviado|fecha|asunto|da|a|inviato|data|oggetto|assunto|van|aan|verzonden|onderwerp|från|till|skickat|ämne|от"
    r"|кому|отправлено|дата|тема|user|assistant|human|system)[ \t*]*:[ \t]*\S.*$",
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
    r"\b(?:(?:e-?mails?|mails?|letter|message|page|article|document|file|logs?|output|post|comment|ticket|report"
    r"|readme|transcript|reply|response|nachricht|brief|seite|artikel|dokument|datei|bericht|courriel|lettre|article"
    r"|fichier|rapport|correo|carta|página|artículo|documento|archivo|informe|wrote|writes|says|said|reads|states"
    r"|schrieb|schreibt|sagt|écrit|dit|escribió|escribe|dice|messaggio|lettera|pagina|articolo|scrive|scritto|mensagem"
    r"|artigo|arquivo|escreveu|escreve|disse|bericht|bestand|schreef|schrijft|meddelande|brev|artikeln|filen|skrev"
    r"|skriver)[^\n:.!?]{0,60}:(?=\s)|(?:following|below|this|text|note|folgende[nrs]?|dies|suivante?|ceci|siguiente"
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


def split_own(text: str, places: Any = None) -> tuple[str, str]:
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
    valid, found = list[tuple[int, int]](), list[tuple[int, int]]()
    for place in places if isinstance(places, list) else []:
        match place:
            case [int(begin), int(end)]:
                valid.append((max(begin, 0), min(end, length)))
            case _:
                pass
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
    places += stamped[:1] if len(stamped) > 1 else []
    return min([*places, speakers[0][0]] if is_chat else places, default=None)


def _introduction_ends(text: str) -> int | None:
    for found in _INTRODUCED.finditer(text):
        before = text[max(found.start() - 60, 0) : found.start()]
        if not (_NOUN.fullmatch(found[0]) and _MINE.search(before) and _ADDRESS.match(text, found.end())):
            return found.end() if text[found.end() :].strip() else None
    return None
