"""Writes the JSON of every dashboard beside its source: ``python dashboards/generate.py``.

Owns finding and naming the files. With ``grafanalib`` installed: ``pip install '.[dashboards]'``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.append(str(HERE))

import shared  # noqa: E402 - found through the line above


def texts() -> Mapping[str, str]:
    """JSON by file name, of every ``*.dashboard.py``."""
    found = {}
    for source in sorted(HERE.glob("*.dashboard.py")):
        name = source.name.removesuffix(".dashboard.py")
        spec = importlib.util.spec_from_file_location(f"ibmon_dashboard_{name}", source)
        if spec is None or spec.loader is None:
            raise ImportError(f"{source} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found[f"ibmon-{name}.json"] = shared.text(module.dashboard)
    return found


def main() -> int:
    """Write all of them."""
    for name, content in texts().items():
        (HERE / name).write_text(content, encoding="utf-8")
        print(f"dashboards/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
