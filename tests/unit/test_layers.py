"""Who may import whom: the core knows no shell, and the simulation is known by nobody but its commands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ibmon

ROOT = Path(ibmon.__file__).parent

# A module is core, and so pure, unless its room is named here.
SHELL = (
    "sysfs", "store", "database", "statedir", "exporter", "runtime", "alert", "cli", "simulate", "drain.slurm",
    "drain.kubernetes", "drain.kube_client", "drain.kube_credentials", "drain.kube_node", "drain.kube_list",
    "drain.kube_fleet", "controller.kubeobject", "controller.lease", "controller.configmap",
    "drain.slurm_text", "drain.slurm_node", "drain.slurmrest", "drain.slurmrest_answer", "drain.webcall",
    "drain.command", "drain.controller", "drain.correspondence",
     "drain.reconcile", "drain.process", "drain.cluster", "recording", "capture",
    "virtualtree", "eventlog", "controlclient", "configfile", "configbuild", "configtree", "configkeys", "configtext",
    "configvalues", "backoff", "__main__", "rulesdoc", "controller.api", "controller.auth", "controller.brain",
    "controller.client", "controller.complaints", "controller.connection", "controller.families",
    "controller.inbound", "controller.metrics", "controller.reports", "controller.server", "controller.tokens",
    "controller.assembly", "controller.conditions", "controller.daemon", "controller.front", "controller.keeping",
    "controller.page", "controller.saving", "controller.schedulers", "controller.worker", "controller.http",
    "promrules", "boards",
)  # fmt: skip
OUTSIDE = {  # clocks, threads, files, networks, chance: what makes a step depend on more than its arguments
    "time", "datetime", "threading", "multiprocessing", "concurrent", "asyncio", "queue", "socket", "ssl", "select",
    "subprocess", "signal", "os", "io", "pathlib", "shutil", "tempfile", "sqlite3", "logging", "random", "secrets",
    "psutil", "pyudev", "apscheduler", "urllib3", "click", "rich", "prometheus_client",
}  # fmt: skip


def modules(room: str) -> list[Path]:
    """The files of a room: a package with all below it, or one module."""
    base = ROOT.joinpath(*room.split("."))
    files = sorted(base.rglob("*.py")) if base.is_dir() else [base.with_suffix(".py")]
    assert all(file.is_file() for file in files), f"there is no room {room}"
    return files


def imports(file: Path) -> Iterator[str]:
    """Dotted names of everything that a file imports, in whatever function it does; names of a package with them."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == f"ibmon.{room}" or name.startswith(f"ibmon.{room}.") for room in rooms)


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


EVERY_FILE = sorted(ROOT.rglob("*.py"))
CORE_FILES = [file for file in EVERY_FILE if not within(f"ibmon.{name_of(file)}", SHELL)]


@pytest.mark.parametrize("file", CORE_FILES, ids=name_of)
def test_the_core_imports_no_shell(file: Path) -> None:
    assert [name for name in imports(file) if within(name, SHELL)] == []


@pytest.mark.parametrize("file", CORE_FILES, ids=name_of)
def test_the_core_has_no_clock_no_thread_no_file_no_chance(file: Path) -> None:
    assert {name.partition(".")[0] for name in imports(file)} & OUTSIDE == set()


@pytest.mark.parametrize("file", CORE_FILES, ids=name_of)
def test_the_core_opens_and_prints_nothing(file: Path) -> None:
    calls = [node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]

    assert {call.id for call in calls if isinstance(call, ast.Name)} & {"open", "print", "input"} == set()


def test_every_room_of_the_shell_is_there() -> None:
    assert [room for room in SHELL if not modules(room)] == []


def test_the_rooms_that_must_be_pure_are_core() -> None:
    core = {name_of(file) for file in CORE_FILES}
    must = {"model", "messages", "config", "sampling", "devices", "engine", "announce", "picture", "snapshot"}

    must |= {"report", *(f"controller.{name}" for name in ("fleet", "fabric", "roster", "ledger", "people", "views"))}
    assert core >= must | {"health.judge", "health.rules", "drain.policy", "drain.intent"}


def test_the_model_imports_nothing_of_ibmon() -> None:
    assert [name for name in imports(ROOT / "model.py") if name.startswith("ibmon")] == []


@pytest.mark.parametrize("file", modules("health"), ids=name_of)
def test_health_knows_no_scheduler(file: Path) -> None:
    assert [name for name in imports(file) if name.startswith("ibmon.drain")] == []


@pytest.mark.parametrize("file", EVERY_FILE, ids=name_of)
def test_only_its_commands_import_the_simulation(file: Path) -> None:
    if not within(f"ibmon.{name_of(file)}", ("simulate", "cli.demo", "cli.simulate")):
        assert [name for name in imports(file) if within(name, ("simulate",))] == []


@pytest.mark.parametrize("file", modules("exporter"), ids=name_of)
def test_the_exporter_reads_no_hardware(file: Path) -> None:
    of_sysfs = [name for name in imports(file) if within(name, ("sysfs",))]

    assert [name for name in of_sysfs if name != "ibmon.sysfs" and not within(name, ("sysfs.catalog",))] == []


@pytest.mark.parametrize("file", modules("drain"), ids=name_of)
def test_draining_does_not_alert(file: Path) -> None:
    allowed = ("alert.signature",)  # the standard's signature is that of reports as well

    assert [name for name in imports(file) if within(name, ("alert",)) and not within(name, allowed)] == []


@pytest.mark.parametrize("file", modules("alert"), ids=name_of)
def test_alerting_does_not_drain(file: Path) -> None:
    allowed = ("drain.policy",)

    assert [name for name in imports(file) if within(name, ("drain",)) and not within(name, allowed)] == []
