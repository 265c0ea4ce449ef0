"""`python -m bench [NAME…] [--quick] [--write]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench import detection, page
from bench.figure import targets_table
from bench.registry import FIGURES
from bench.settings import Settings, tiny

DETECTION = "detection"


def main() -> int:
    """Measure, print, and with --write make the page; 1 when a target is missed.

    `detection` stands alone: it measures no time of this machine, and has a page of its own.
    """
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure ibmon beside node_exporter.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"figures to measure: {', '.join(FIGURES)}; or {DETECTION}"
    )
    parser.add_argument(
        "--write", action="store_true", help=f"write docs/performance.md (needs all figures), or docs/{DETECTION}.md"
    )
    parser.add_argument(
        "--quick", action="store_true", help="run everything for a moment only; the numbers mean nothing"
    )
    options = parser.parse_args()
    if options.names == [DETECTION]:
        return detection.main(write=options.write)
    if unknown := [name for name in options.names if name not in FIGURES]:
        parser.error(f"no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    if options.write and (options.names or options.quick):
        parser.error("--write takes all figures at full length: leave names and --quick out")
    figures = []
    with tempfile.TemporaryDirectory(prefix="ibmon-bench-") as directory:
        scratch = Path(directory)
        settings = tiny(scratch) if options.quick else Settings(scratch)
        for name in options.names or FIGURES:
            figure = FIGURES[name](settings)
            figures.append(figure)
            print(f"{figure.markdown()}\n", flush=True)
    print(targets_table(figures).markdown())
    if options.write:
        page.write(figures)
    return int(any(target.met is False for figure in figures for target in figure.targets))


if __name__ == "__main__":
    sys.exit(main())
