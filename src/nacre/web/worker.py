"""The program of a worker of `nacre serve`: `python -m nacre.web.worker SOCKET`."""

from __future__ import annotations

from nacre.runtime.worker import main
from nacre.web.api.openai_requests import make_handlers

if __name__ == "__main__":
    main(make_handlers())
