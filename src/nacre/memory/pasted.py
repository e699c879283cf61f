"""What of a message is the user's own: mails, files, quotes and code that they pasted are not."""

from __future__ import annotations

import re
from typing import Any

_FENCE = re.compile(r"^[ \t]*(`{3,}+|~{3,}+)[^\n]*\n.*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_TAGGED = re.compile(r"<(\w[\w.-]*)(?:\s[^<>]*)?>.*?(?:</\1\s*>|\Z)", re.DOTALL)
_QUOTED_LINE = re.compile(r"^[ \t]*[>|].*$", re.MULTILINE)
# The head of a mail, or who speaks in a conversation that was copied.
_HEADER = re.compile(
    r"^[ \t*]*(?:from|to|cc|date|sent|subject|reply-to|von|an|gesendet|datum|betreff|de|à|envoyé|objet|date"
    r"|para|enviado"
    r"|fecha|asunto|user|assistant|human|system)[ \t*]*:[ \t]*\S.*$",
    re.MULTILINE | re.IGNORECASE,
)
_FORWARDED = re.compile(
    r"^[ \t]*(?:---.*(?:original|forwarded|weitergeleitet|ursprüngliche|transféré|reenviado|message|nachricht).*"
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
    r"|sagt|écrit|dit|escribió|escribe|dice)[^\n:.!?]{0,60}:(?=\s)"
    r"|(?:following|below|this|text|note|folgende[nrs]?|dies|suivante?|ceci|siguiente"
    r"|esto)[^\n:.!?]{0,60}:(?=[ \t]*\n))"
    r"|(?:письм[оа]|сообщени[ея]|статья|документ|файл|пишет|написал[аи]?|сказал[аи]?"  # noqa: RUF001 - as they are written
    r"|邮件|郵件|信件|消息|文章|文件|日志|写道|說|说|メール|手紙|記事|文書|ファイル|메일|편지|기사|문서)"
    r"[^\n:：.!?。！？]{0,60}[:：]",  # noqa: RUF001 - the same
    re.IGNORECASE,
)
_QUOTE = re.compile(r"“[^”]+”|„[^“”]+[“”]|«[^»]+»|\"[^\"\n]+\"")
_LONG_QUOTE = 6
_TYPED, _PARAGRAPH = 2_000, 400


def split(text: str, places: Any = None) -> tuple[str, str]:
    """The user's own words in a message, and the rest; `places` are where it is known to be pasted, as stored."""
    own, pasted = text, list[str]()

    def take(found: re.Match[str]) -> str:
        pasted.append(found[0])
        return "\n"

    # 1. What the channel knows to be pasted.
    for place in reversed(places if isinstance(places, list) else []):
        match place:
            case [int(begin), int(end)] if 0 <= begin < end <= len(own):
                pasted.append(own[begin:end])
                own = f"{own[:begin]}\n{own[end:]}"
            case _:
                continue
    # 2. What is marked in the text: blocks of code, files, quoted lines.
    for pattern in (_FENCE, _TAGGED, _QUOTED_LINE):
        own = pattern.sub(take, own)
    # 3. What begins like a mail, or is introduced, goes on to the end.
    for find in (_mail_begins, _introduction_ends):
        if (start := find(own)) is not None:
            pasted.append(own[start:])
            own = own[:start]
    # 4. Quotes of more than a few words.
    own = _QUOTE.sub(lambda found: take(found) if len(found[0].split()) >= _LONG_QUOTE else found[0], own)
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


def _mail_begins(text: str) -> int | None:
    """Where a mail was pasted: at a line that says so, or at two headers; None if there is none."""
    places = [found.start() for found in _FORWARDED.finditer(text)]
    headers = [found.start() for found in _HEADER.finditer(text)]
    return min([*places, *headers[:1]] if len(headers) > 1 else places, default=None)


def _introduction_ends(text: str) -> int | None:
    found = _INTRODUCED.search(text)
    return found.end() if found is not None and text[found.end() :].strip() else None
