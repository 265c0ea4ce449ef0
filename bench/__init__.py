"""The figures of docs/performance.md: measured on this machine, beside node_exporter, as ratios within one run.

`python -m bench` prints them, `python -m bench --write` also writes the page. Nothing here is part of the daemon.
"""

import sys
from pathlib import Path

# What starts and stops other programs is shared with the end-to-end tests.
sys.path.append(str(Path(__file__).parents[1] / "tests" / "e2e"))
