"""A program that stores messages until that is refused: `python -m tests.writes_until_refused PLACE NAME`.

It prints a line for each message that was acknowledged, a key and a text, and at the end the words of the refusals.
Each of its threads begins sessions of its own, and all programs write to the same ones as well.
"""

from __future__ import annotations

import sys
from threading import Lock, Thread

import nacre

THREADS = 3
_printing = Lock()


def tell(*words: str) -> None:
    with _printing:
        sys.stdout.write("\t".join(words) + "\n")
        sys.stdout.flush()


def work(sessions: nacre.Sessions, name: str) -> None:
    at = 0
    try:
        while True:
            at += 1
            own = f"own:{name}:{at // 8}"
            for key in (own, f"shared:{at % 3}"):
                text = f"{name} {at}"
                sessions.add_message(key, "user", text)
                tell("stored", key, text)
            if at % 8 == 7:
                sessions.archive(own)
                tell("archived", own)
    except nacre.Refused as error:
        tell("refused", str(error))


def main(place: str, name: str) -> None:
    with nacre.open(place) as sessions:
        threads = [Thread(target=work, args=(sessions, f"{name}.{at}")) for at in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
