"""`python -m nacre` is the command `nacre`."""

import sys

from nacre.cli import main

if __name__ == "__main__":
    sys.exit(main())
