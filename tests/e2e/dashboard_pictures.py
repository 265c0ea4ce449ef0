"""Draws docs/pictures/dashboard-*.png anew: a slow day of the simulated fleet, each dashboard in dark and light.

``PYTHONPATH=.:tests/e2e .venv/bin/python tests/e2e/dashboard_pictures.py [DIR]`` takes three minutes. The dark ones are
kept in docs; with DIR both are written there, to be looked at.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from services import grafana, pypi
from services.day import CHOSEN, DASHBOARDS, ROOT, Day

PACE = 1.0
"""As slow as life, so that rates are those of real links."""
EVERY = 5.0
PICTURES = ROOT / "docs/pictures"
_PALETTE = """\
import sys
from PIL import Image
for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    picture = Image.open(source).convert("RGB")
    picture.quantize(96, dither=Image.Dither.NONE).save(target, optimize=True)
"""


def main(directory: Path | None) -> None:
    """Draw them all; complaints are printed."""
    with tempfile.TemporaryDirectory() as scratch, Day(pace=PACE, every=EVERY) as day:
        drawings = [
            grafana.Drawing(
                file, (directory or Path(scratch)) / f"{file.stem.removeprefix('ibmon-')}-{theme}.png", theme,
                day.start, day.end, CHOSEN.get(file.stem, {}),
            )
            for file in DASHBOARDS
            for theme in ("dark", "light")
        ]  # fmt: skip
        for drawing, report in zip(drawings, grafana.draw(drawings, day.prometheus.url, EVERY), strict=True):
            print(drawing.out.stem, report.problems or "ok")
        kept = [one.out for one in drawings if one.theme == "dark"]
        pairs = [
            str(part)
            for out in kept
            for part in (out, ROOT / "docs/pictures" / f"dashboard-{out.name.replace('-dark', '')}")
        ]
        (ROOT / "docs/pictures").mkdir(exist_ok=True)
        found = str(pypi.installed("pillow"))
        subprocess.run([sys.executable, "-c", _PALETTE, *pairs], check=True, env={"PYTHONPATH": found})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
