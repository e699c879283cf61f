"""What people type, and which of some messages they mean: the right one comes first."""

# ruff: noqa: RUF001 - letters that look like others are what is tested

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nacre
from nacre.index import Index

MESSAGES = {
    "müller": "Herr Müller wohnt in der Goethestraße 7 in Köln",
    "strasse": "Wir treffen uns an der Straße beim Schloßpark",
    "isik": "Odada ışık yok, İzmir'den elektrikçi geliyor",
    "athens": "Πετάμε στην Αθήνα την Παρασκευή, ξενοδοχείο κοντά στην Ακρόπολη",
    "cv": "I attached my résumé and a naïve cover letter",
    "hotel": "The accommodation in Lisbon was booked for three nights, breakfast included",
    "mail": "Please send the e-mail to the tax office before Friday",
    "retry": "The gateway re-sends the webhook after a timeout of 30 seconds",
    "money": "The invoice came to 1,234.56 EUR including shipping",
    "german money": "Die Rechnung über 98.765,43 Euro ist bezahlt",
    "population": "The town has 1 million people; the village has 12'345 inhabitants",
    "snake": "set enable_shadow_writes to true in settings.toml",
    "camel": "call parseHttpResponse(raw) before closeConnection()",
    "trace": "ConnectionRefusedError: [Errno 111] Connection refused at db.internal:5432",
    "path": "the log is in /var/log/nginx/access.log on host web-03",
    "cve": "upgrade openssl, CVE-2024-6387 is exploitable",
    "hash": "fixed in commit 9f8e7d6c5b4a, please cherry-pick it",
    "ip": "the printer got 192.168.178.42 from DHCP",
    "version": "we run PostgreSQL 16.3 and Python 3.11.7",
    "cpp": "the C++ part is slower than the C# one, .NET 8 is fine",
    "emoji": "we won the cup 🎉🎉 last night",
    "chinese": "储物柜的密码是四七一一，别告诉别人",
    "japanese": "明日は東京タワーに行きます",
    "korean": "내일 서울에서 회의가 있습니다",
    "thai": "พรุ่งนี้ไปกรุงเทพ",
    "arabic": "الاجتماع غدا في القاهرة",
    "hindi": "कल दिल्ली में बैठक है",
    "russian": "Ключ от шкафчика лежит под ёлкой",
    "dont": "we don’t ship on Sundays",
    "mice": "there were mice in the cellar again",
    "went": "Caroline went to a support group in May",
    "database": "The database migration failed because the disk was full",
    "running": "She is running three marathons this year",
    "locker": "Anna's locker code is 4711",
    "quote": 'the sign said "to be or not to be"',
    "phrase": "deploying to production on a Friday is a bad idea",
    "other phrase": "the production line is idle; deploy nothing",
    "shell": "run git rebase --onto main topic~3 topic",
    "french": "L'été dernier nous étions à Nîmes près des arènes",
    "spanish": "El niño está en el jardín con la señora Muñoz",
    "polish": "Łódź jest piękna, spotkajmy się przy źródle",
    "danish": "Vi ses på Østerbro ved Søerne, smørrebrød er klar",
    "dentist": "My appointment with the dentist is on Tuesday at nine",
    "recipe": "The recipe needs two tablespoons of tahini and a lemon",
    "vet": "The veterinarian said that Biscuit must lose weight",
}

TYPED = [
    *(("runing marathons", "running"), ("exploitble", "cve")),
    *(
        ("mueller", "müller"),
        ("Müller", "müller"),
        ("muller", "müller"),
        ("koeln", "müller"),
        ("goethestrasse", "müller"),
    ),
    *(("Goethestraße", "müller"), ("strasse schlosspark", "strasse"), ("Schloßpark", "strasse"), ("straße", "strasse")),
    *(("isik", "isik"), ("ışık", "isik"), ("izmir", "isik"), ("IZMIR", "isik"), ("elektrikci", "isik")),
    *(("αθηνα", "athens"), ("ΑΘΗΝΑ", "athens"), ("ακροπολη", "athens"), ("Ακρόπολη", "athens")),
    *(("resume", "cv"), ("résumé", "cv"), ("resum", "cv"), ("naive", "cv")),
    *(("accommodation", "hotel"), ("accomodation", "hotel"), ("acommodation", "hotel"), ("accommodations", "hotel")),
    *(("accom*", "hotel"), ("accommoda*", "hotel"), ("lisb*", "hotel"), ("breakfsat", "hotel"), ("brekfast", "hotel")),
    *(("email", "mail"), ("e-mail", "mail"), ("E-Mail", "mail"), ("emails", "mail"), ("resend", "retry")),
    *(("re-send", "retry"), ("resends webhook", "retry"), ("webhooks", "retry"), ("timeouts", "retry")),
    *(("1234.56", "money"), ("1,234.56", "money"), ("1234", "money"), ("invoices", "money"), ("98765", "german money")),
    *(("98765,43", "german money"), ("98.765,43", "german money"), ("12345", "population"), ("12'345", "population")),
    *(("enableShadowWrites", "snake"), ("enable_shadow_writes", "snake"), ("shadow writes", "snake")),
    *(
        ("shadowWrites", "snake"),
        ("parse_http_response", "camel"),
        ("parseHttpResponse", "camel"),
        ("http response", "camel"),
    ),
    *(
        ("closeconnection", "camel"),
        ("close_connection", "camel"),
        ("connection refused", "trace"),
        ("Errno 111", "trace"),
    ),
    *(
        ("db.internal", "trace"),
        ("ConnectionRefusedError", "trace"),
        ("/var/log/nginx", "path"),
        ("nginx/access.log", "path"),
    ),
    *(("access.log", "path"), ("web-03", "path"), ("CVE-2024-6387", "cve"), ("cve 2024", "cve"), ("9f8e7d6c", "hash")),
    *(("9f8e7d6c5b4a", "hash"), ("192.168.178.42", "ip"), ("192.168", "ip"), ("16.3", "version"), ("3.11", "version")),
    *(("C++", "cpp"), ("C#", "cpp"), (".NET", "cpp"), ("🎉", "emoji"), ("密码", "chinese"), ("储物柜", "chinese")),
    *(("柜", "chinese"), ("東京", "japanese"), ("タワー", "japanese"), ("서울", "korean"), ("회의", "korean")),
    *(("กรุงเทพ", "thai"), ("القاهرة", "arabic"), ("दिल्ली", "hindi"), ("ключ", "russian"), ("елкой", "russian")),
    *(("шкафчика", "russian"), ("dont", "dont"), ("don't ship", "dont"), ("mouse", "mice"), ("mice", "mice")),
    *(("go support", "went"), ("When did Caroline go to the support group?", "went"), ("databse", "database")),
    *(
        ("migrations fail", "database"),
        ("full disk", "database"),
        ("run marathon", "running"),
        ("runs marathons", "running"),
    ),
    *(("what is the locker code of Anna please tell", "locker"), ("lockers", "locker"), ('"to be or not"', "quote")),
    *(("to be or not to be", "quote"), ('"deploying to production"', "phrase"), ("production -idle", "phrase")),
    *(("production -deploying -bad", "other phrase"), ("idle OR marathons -production", "running")),
    *(
        ("tahini OR sesame", "recipe"),
        ("sesame OR tahini lemon", "recipe"),
        ("git rebase --onto", "shell"),
        ("--onto", "shell"),
    ),
    *(
        ("nimes", "french"),
        ("ete dernier", "french"),
        ("nino senora", "spanish"),
        ("munoz", "spanish"),
        ("jardin", "spanish"),
    ),
    *(
        ("lodz", "polish"),
        ("zrodle", "polish"),
        ("oesterbro", "danish"),
        ("osterbro", "danish"),
        ("smorrebrod", "danish"),
    ),
    *(("dentist appointment", "dentist"), ("dentits", "dentist"), ("appointmant", "dentist"), ("tablespoon", "recipe")),
    *(("reciepes", "recipe"), ("vetrinarian", "vet"), ("biscuits", "vet"), ("weigth", "vet")),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    root, cache = (str(tmp_path_factory.mktemp(name)) for name in ("store", "cache"))
    with nacre.open(root, durability="relaxed") as sessions:
        for key, text in MESSAGES.items():
            sessions.add_message(key, "user", text)
        found = Index(root, cache=cache)
        yield found
        found.close()


@pytest.mark.parametrize(("typed", "meant"), TYPED, ids=[typed for typed, _ in TYPED])
def test_what_is_typed_finds_what_is_meant(index: Index, typed: str, meant: str) -> None:
    assert [hit.key for hit in index.search(typed, limit=1)] == [meant]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        *(
            ("plotter", set()),
            ("poet", set()),
            ('"locker codes"', set()),
            ("disc", set()),
            ("mies", set()),
            ("cat*", set()),
        ),
        *(("accommodation Madrid", set()), ("-mice mice", set()), ('"run"', {"shell", "version"}), ('-"mice"', None)),
    ],
)
def test_what_is_not_meant_is_not_found(index: Index, typed: str, found: set[str] | None) -> None:
    assert {hit.key for hit in index.search(typed)} == (MESSAGES.keys() - {"mice"} if found is None else found)


def test_a_word_that_is_nowhere_is_not_taken_for_a_short_one_with_another_ending(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("a", "user", "we all like it")
        index = Index(str(tmp_path / "store"), cache=str(tmp_path / "cache"))
        assert index.search("illness") == []
        index.close()
