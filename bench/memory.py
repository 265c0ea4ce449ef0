"""Resident memory of the daemon, what each import adds, and which libraries a running daemon has not loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import tree
from bench.figure import Figure, Table, Target, median
from bench.programs import ROOT, ibmon
from bench.settings import Settings

LIMITS_MIB = {(3, 11): 40.0, (3, 13): 42.0}

METHOD = """\
`ibmon run` at {size} devices after three scrapes in both formats. RSS counts pages shared with other processes
whole, PSS their share (/proc/PID/smaps_rollup). The targets are for the RSS of the daemon's own process; reading
is done by processes of its own (docs/architecture.md), whose pages are mostly shared with it."""

IMPORTS_REMARK = """\
Each import alone in a fresh interpreter ({version}), in the order that the daemon needs them: what it adds to
what stands above it. `rich` and `urllib3` are loaded by the status table and by a configured webhook; `click`
is the command line."""

IMPORTS = (
    "click", "msgspec", "tomllib", "sqlite3", "http.server", "prometheus_client", "psutil", "pyudev", "apscheduler",
    "ibmon.runtime.live",
)  # fmt: skip
OPTIONAL = ("rich.console", "urllib3")

_ADDED = """\
import importlib, json, sys, time
def rss():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 2**20
out = [["interpreter", rss(), time.process_time() * 1e3]]
for name in sys.argv[1:]:
    before, began = rss(), time.process_time()
    try:
        importlib.import_module(name)
    except ImportError:
        continue
    out.append([name, rss() - before, (time.process_time() - began) * 1e3])
print(json.dumps(out))
"""

_LOADED = """\
import json, os, signal, sys, threading, time
def tell():
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(0.05)
    time.sleep(float(os.environ["IBMON_BENCH_WAIT"]))
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=tell, daemon=True).start()
from ibmon.cli import main
sys.exit(main())
"""


def interpreters() -> Iterator[tuple[tuple[int, int], str]]:
    """This interpreter, and those of `make test-all` that can import ibmon, by version."""
    found: dict[tuple[int, int], str] = {}
    for python in [sys.executable, *map(str, sorted(ROOT.glob(".venvs/*/bin/python")))]:
        asked = subprocess.run(
            [python, "-c", "import ibmon, sys; print(*sys.version_info[:2])"],
            capture_output=True, text=True, check=False, env=_environment(),
        )  # fmt: skip
        if not asked.returncode:
            major, minor = asked.stdout.split()
            found.setdefault((int(major), int(minor)), python)
    yield from sorted(found.items())


def loaded(root: Path, scratch: Path, wait: float = 3.0) -> frozenset[str]:
    """Top-level names of all modules that a running daemon without targets has loaded after some seconds."""
    for name in ("loaded-state", "loaded-run"):
        (scratch / name).mkdir(exist_ok=True)
    configuration = scratch / "loaded.toml"
    configuration.write_text(
        '[exporter]\nlisten = "127.0.0.1:0"\n'
        f'[state]\ndirectory = "{scratch}/loaded-state"\nruntime_directory = "{scratch}/loaded-run"\n'
    )
    run = subprocess.run(
        [sys.executable, "-c", _LOADED, "--config", configuration, "--sysfs", root, "run"],
        capture_output=True, text=True, check=True, timeout=60, env=_environment() | {"IBMON_BENCH_WAIT": str(wait)},
    )  # fmt: skip
    return frozenset(json.loads(run.stdout))


def imports(*names: str) -> list[tuple[str, float, float]]:
    """(module, MiB of resident memory, CPU ms) that each import adds, in turn in one fresh interpreter; median of 5."""
    runs = []
    for _ in range(5):
        run = subprocess.run(
            [sys.executable, "-c", _ADDED, *names], capture_output=True, text=True, check=True, env=_environment()
        )
        runs.append(json.loads(run.stdout))
    return [(row[0][0], median(r[1] for r in row), median(r[2] for r in row)) for row in zip(*runs, strict=True)]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def measure(settings: Settings) -> Figure:
    """Memory for each interpreter, and the imports."""
    size = settings.sizes[0]
    root = tree.write(size, settings.scratch)
    rows, targets = [], []
    for version, python in interpreters():
        with ibmon(root, settings.scratch, python=python) as own:
            for _ in range(3):
                own.scrape()
                own.scrape(plain=True)
                time.sleep(min(6.0, settings.watch / 3))
            memory = own.memory()
        name = ".".join(map(str, version))
        daemon, *readers = memory
        told = [f"{sum(m['Pss'] for m in of):.1f}" if "Pss" in daemon else "-" for of in ([daemon], readers, memory)]
        rows.append((f"Python {name}", f"{daemon['Rss']:.1f}", *told))
        if version in LIMITS_MIB:
            targets.append(Target(f"RSS at {size} devices, Python {name}", daemon["Rss"], LIMITS_MIB[version], "MiB"))
    modules = loaded(root, settings.scratch)
    targets += [
        Target(f"modules of {name} in a daemon without targets", float(name in modules), 0.0)
        for name in ("rich", "urllib3")
    ]
    added = [*imports(*IMPORTS), *(imports(name)[1] for name in OPTIONAL)]
    table = Table(
        ("import", "RSS, MiB", "CPU, ms", "in the daemon"),
        [
            (n, f"{mib:.1f}", f"{ms:.0f}", "-" if i >= len(added) - len(OPTIONAL) else "yes")
            for i, (n, mib, ms) in enumerate(added)
        ],
    )
    remark = IMPORTS_REMARK.format(version=sys.version.split()[0])
    heads = ("MiB", "RSS, daemon", "PSS, daemon", "PSS, readers", "PSS, in all")
    return Figure("Memory", METHOD.format(size=size), (Table(heads, rows), table), targets, remark)
