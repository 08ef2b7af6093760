"""`python -m svod <verb>`: the same as the `svod` console script."""

import sys

from svod.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
