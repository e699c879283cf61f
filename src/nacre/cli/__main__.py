"""`python -m nacre.cli` is `nacre`."""

from nacre.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
