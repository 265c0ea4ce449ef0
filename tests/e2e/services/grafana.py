"""Dashboards drawn with Grafana's own libraries in headless Chromium, and held to Grafana's published models.

Owns: the libraries from npm and the page made of them, in `${XDG_CACHE_HOME:-~/.cache}/ibmon-e2e/grafana`, and one
Chromium a call. Must not: know what is on a dashboard.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import chromium, debian, pypi
from .processes import ServiceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOURCE = Path(__file__).resolve().parents[1] / "grafana"
MODELS = "grafana-foundation-sdk==0.0.21"
"""Grafana 12's models as its publisher generates them."""

_NEEDED = {"node": "nodejs", "npm": "npm"}
_BUNDLE = (
    "--bundle", "--jsx=automatic", '--define:process.env.NODE_ENV="production"', "--log-level=warning",
    *(f"--loader:.{kind}=dataurl" for kind in ("svg", "woff", "woff2", "ttf", "png")),
)  # fmt: skip


class Drawing(NamedTuple):
    """One picture: a dashboard's JSON file, the theme, and the time (epoch seconds) that it shows."""

    dashboard: Path
    out: Path
    theme: str
    start: float
    end: float
    variables: Mapping[str, str] = {}


class Report(NamedTuple):
    """What is wrong with a drawn dashboard, and how many rows of data each panel had."""

    problems: list[str]
    rows: dict[str, int]


def draw(drawings: Sequence[Drawing], prometheus: str, scrape: float) -> list[Report]:
    """Draws dashboards against a Prometheus, one after the other in one browser; a report each.

    Raises:
        ServiceError: a program is missing, or the page cannot be made.
    """
    programs = _programs()
    modules, dist = _built(programs)
    requests = [
        {
            "dashboard": str(one.dashboard),
            "out": str(one.out),
            "query": {
                "prom": prometheus,
                "theme": one.theme,
                "from": str(int(one.start * 1000)),
                "to": str(int(one.end * 1000)),
                "scrape": f"{scrape:g}",
                "vars": json.dumps(dict(one.variables)),
            },
        }
        for one in drawings
    ]
    with tempfile.TemporaryDirectory(prefix="ibmon-grafana.") as scratch:
        browser, env = chromium.program(Path(scratch))
        drawing = [programs["node"], SOURCE / "draw.mjs", dist, modules, *map(json.dumps, requests)]
        done = _run(drawing, env={**env, "CHROME": browser})
    return [_report(found) for found in json.loads(done)]


def _report(found: dict[str, Any]) -> Report:
    of_panels = [f"{panel['title']}: {problem}" for panel in found["panels"] for problem in panel["problems"]]
    rows = {panel["title"]: panel["rows"] for panel in found["panels"]}
    return Report([*found["problems"], *found["errors"], *of_panels], rows)


def _programs() -> dict[str, str]:
    found = {name: shutil.which(name) for name in _NEEDED}
    if missing := [_NEEDED[name] for name, path in found.items() if path is None]:
        raise ServiceError(f"dashboards are drawn by programs that are not here: apt-get install {' '.join(missing)}")
    return {name: path for name, path in found.items() if path is not None}


def _built(programs: Mapping[str, str]) -> tuple[Path, Path]:
    """The libraries, and the page made of them: once for each list of libraries and each state of the sources."""
    cache = debian.cache_directory().parent / "grafana"
    cache.mkdir(exist_ok=True)
    modules = cache / f"modules-{_digest([SOURCE / 'package.json'])}"
    dist = cache / f"page-{_digest(sorted(SOURCE.iterdir()))}"
    with (
        (cache / "lock").open("w") as lock,
        tempfile.TemporaryDirectory(prefix="build.", dir=cache) as scratch_name,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        scratch = Path(scratch_name)
        if not modules.is_dir():
            (scratch / "modules").mkdir()
            shutil.copy(SOURCE / "package.json", scratch / "modules")
            _run([programs["npm"], "install", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=scratch / "modules")
            (scratch / "modules").rename(modules)
        if not dist.is_dir():
            # Sources are bundled from a copy beside the libraries, where imports are looked for.
            work = scratch / "work"
            shutil.copytree(SOURCE, work)
            (work / "node_modules").symlink_to(modules / "node_modules")
            esbuild = modules / "node_modules/esbuild/bin/esbuild"
            _run([esbuild, "page.jsx", *_BUNDLE, f"--outfile={scratch}/dist/app.js"], cwd=work)
            shutil.copy(SOURCE / "index.html", scratch / "dist")
            (scratch / "dist").rename(dist)
    return modules, dist


def _digest(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files if file.is_file())).hexdigest()[:12]


def _run(argv: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=600, check=False, cwd=cwd, env={**os.environ, **(env or {})}
    )
    if done.returncode:
        raise ServiceError(f"{Path(argv[0]).name}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


_ROUND_TRIP = """\
import json, sys
from grafana_foundation_sdk.cog import encoder, plugins
from grafana_foundation_sdk.models import dashboard
plugins.register_default_plugins()
found = json.load(sys.stdin)
print(encoder.JSONEncoder(sort_keys=True).encode(dashboard.Dashboard.from_json(found)))
"""


def unknown_keys(dashboard: Path) -> list[str]:
    """Returns the paths in a dashboard that Grafana's models do not know: they are lost on the way through them."""
    import sys

    given = _filled(json.loads(dashboard.read_text()))
    done = subprocess.run(
        [sys.executable, "-c", _ROUND_TRIP],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(pypi.installed(MODELS))},
    )
    if done.returncode:
        return [f"{dashboard.name}: {done.stderr.strip().splitlines()[-1]}"]
    return list(_lost(given, json.loads(done.stdout), dashboard.name))


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one) for key, one in value.items() if one is not None}
    return [_filled(one) for one in value] if isinstance(value, list) else value


def _lost(given: Any, kept: Any, path: str) -> list[str]:
    if isinstance(given, dict):
        out: list[str] = []
        for key, one in given.items():
            if isinstance(kept, dict) and key in kept:
                out += _lost(one, kept[key], f"{path}.{key}")
            elif one not in ([], {}, ""):
                out.append(f"{path}.{key}")
        return out
    if isinstance(given, list):
        pairs = [(one, kept[i] if isinstance(kept, list) and i < len(kept) else None) for i, one in enumerate(given)]
        return [lost for i, (one, other) in enumerate(pairs) for lost in _lost(one, other, f"{path}[{i}]")]
    return []
