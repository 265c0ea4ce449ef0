"""Makes the pictures of docs/ anew: the pages with a demo scenario and a made-up fleet behind them.

    PYTHONPATH=tests/e2e .venv/bin/python tests/e2e/pictures.py [DIRECTORY]

Takes a minute. It is no test; the tests of the pages are `test_node_page.py` and `test_fleet_page.py`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from services.chromium import Browser
from services.daemon import COMMAND
from services.fleet import Fleet
from services.processes import LOOPBACK, Process, free_ports, wait_for

PICTURES = Path(__file__).parents[2] / "docs/pictures"
SCENARIO, MOMENT = "half-rate", 33.0  # seconds into it


def node(browser: Browser, directory: Path) -> None:
    """The daemon's page in the middle of a scenario."""
    [port] = free_ports(1)
    url = f"http://{LOOPBACK}:{port}/"
    with tempfile.TemporaryDirectory() as scratch:
        demo = Process(
            [COMMAND, "demo", SCENARIO, "--listen", f"{LOOPBACK}:{port}"], Path(scratch) / "log", env=os.environ
        )
        try:
            began = time.monotonic()
            wait_for(lambda: b"page: http" in demo.log.read_bytes(), within=20, what="the demo")
            with browser.open(url, width=1280, height=1060) as tab:
                time.sleep(max(0.0, began + MOMENT - time.monotonic()))
                tab.picture(directory / "node.png", whole=False)
        finally:
            demo.stop()


def fleet(browser: Browser, directory: Path) -> None:
    """The controller's page, a node of a hit leaf chosen, in the dark."""
    with Fleet(1000) as fleet, browser.open(f"{fleet.url}#node=gpu00224", width=1280, height=1000, dark=True) as tab:
        tab.wait("document.querySelector('#chosen dl dd') !== null")
        tab.evaluate("document.getElementById('matrix').focus()")
        tab.press("n", 3)
        tab.evaluate("document.activeElement.blur()")
        tab.picture(directory / "fleet.png", whole=False)


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    place.mkdir(exist_ok=True)
    with Browser() as running:
        fleet(running, place)
        node(running, place)
