"""`python -m ibmon`: the same command line as the console script. Owns nothing else."""

from __future__ import annotations

import sys

from ibmon.cli import main

if __name__ == "__main__":
    sys.exit(main())
