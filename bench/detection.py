"""How soon each fault is found, and what is accused wrongly: ibmon beside the published rules of gpud and NVSentinel.

All three are played the same recordings in virtual time, so that the page is the same wherever it is made. Owns the
playing and the page; the recordings are `bench.scenes`, the others' rules `bench.peers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from bench.figure import Table, fill
from bench.peers import gpud, nvsentinel
from bench.peers.view import Program, Verdict, polls
from bench.programs import ROOT
from bench.scenes import BENIGN, ELSEWHERE, FAULTS, Scene
from ibmon.configfile import loads
from ibmon.model import Role
from ibmon.runtime.replay import World, play
from ibmon.simulate.dgx import COMPUTE, STORAGE, dgx

PAGE = ROOT / "docs" / "detection.md"

PEERS: tuple[tuple[Callable[[], Program], float], ...] = (
    (gpud.Gpud, gpud.INTERVAL),
    (nvsentinel.NvSentinel, nvsentinel.INTERVAL),
)

HEAD = """\
Made by `python -m bench detection --write`. A node with 8 compute, 2 storage and 2 management ports is recorded with
`ibmon.simulate`; the recordings are played in virtual time to ibmon (`ibmon replay`: default settings, the inventory
declared, mode `drain`), and to the published decision rules of two other monitors, written anew from their
documentation: gpud's InfiniBand component (leptonai/gpud 4a8de33a, 2026-08-22: polls every 30 s, expects 8 ports of
400 Gb/s) and NVSentinel's nic-health-monitor (NVIDIA/NVSentinel 42672ae8, 2026-08-21: polls every second, default
values of its chart). It is their rules that are compared and not their programs, which do much else: gpud drains
nobody by itself, so its word *Unhealthy* is shown; NVSentinel cordons a node at a *fatal* event. Left out are the
kernel log (events only at gpud, off in NVSentinel's production chart), and of NVSentinel character devices and its
analyzer of repeated events."""

FAULTS_TEXT = """\
Time from the fault until it is known. *Finding*: ibmon warns and alerts; the port's health shows what was read at the
next look already. *Unfit*: ibmon asks for a drain. *Event*: NVSentinel notes something, fatal or not. `never`: not
within the recording."""

ELSEWHERE_TEXT = """\
How often the node is called bad (unfit, Unhealthy, fatal), and for how long. It cannot take part in a job meanwhile,
so the verdict is right while the link is away; what counts is that it ends. *stays*: until the end of the recording
(25 minutes or more after its begin)."""

BENIGN_TEXT = """\
The same where nothing is wrong with the node: every verdict here is a false one. A fatal breach of a counter ends at
NVSentinel only with a reset of the counter or a reboot."""


class Seen(NamedTuple):
    """What one monitor said of one recording, in seconds from the scene's start.

    When it first noted a fault, when it first called the node bad (None: never), and the spans in which it called it
    so (without an end: to the last).
    """

    noted: float | None
    bad: float | None
    spans: tuple[tuple[float, float | None], ...]


def inventory() -> str:
    """The node's ports as an operator declares them, by slot, with mode drain."""
    lines = ['[inventory]\nmode = "declared"']
    for name, placed in dgx().devices.items():
        if placed.pci is None:
            continue
        role, rate = (Role.COMPUTE, 400) if name in COMPUTE else (Role.STORAGE, 200)
        kind = f'role = "{role.value}"\nrate = {rate}' if name in (*COMPUTE, *STORAGE) else 'role = "management"'
        lines.append(f'[[port]]\nmatch = "pci:{placed.pci.address}"\n{kind}')
    return "\n".join([*lines, '[action]\nmode = "drain"\nscheduler = "none"\n'])


def ibmon(scene: Scene) -> Seen:
    """What ibmon says."""
    world = World(scene.header, loads(inventory(), "detection").config)
    verdicts = (
        (t, Verdict(any(f["severity"] != "info" for f in row["findings"]), row["node"] == "unfit"))
        for t, row in play(world, scene.frames(), (), scene.end)
    )
    return _seen(verdicts, scene)


def peer(scene: Scene, program: Program, interval: float) -> Seen:
    """What another monitor's rules say."""
    verdicts = ((p.monotonic, program(p)) for p in polls(scene.frames(), scene.header, interval, scene.end))
    return _seen(verdicts, scene)


def _seen(verdicts: Iterable[tuple[float, Verdict]], scene: Scene) -> Seen:
    noted: float | None = None
    spans: list[tuple[float, float | None]] = []
    for t, verdict in verdicts:
        at = t - scene.start
        if verdict.noted and noted is None:
            noted = at
        is_bad = bool(spans) and spans[-1][1] is None
        if verdict.bad and not is_bad:
            spans.append((at, None))
        elif is_bad and not verdict.bad:
            spans[-1] = (spans[-1][0], at)
    return Seen(noted, spans[0][0] if spans else None, tuple(spans))


Seens = tuple[Seen, Seen, Seen]
"""ibmon's, gpud's, NVSentinel's."""

Row = Callable[[int | None, Scene, Seens], tuple[str, ...]]


def everyone(scene: Scene) -> Seens:
    """ibmon, gpud, NVSentinel on one recording."""
    others = [peer(scene, program(), interval) for program, interval in PEERS]
    return ibmon(scene), others[0], others[1]


# ---------------------------------------------------------------------------------------------------------------- page


def fault_row(number: int | None, scene: Scene, seen: Seens) -> tuple[str, ...]:
    """A fault's row; `number` is that of its remark."""
    ours, gpu, nvs = seen
    times = (ours.noted, ours.bad, gpu.bad, nvs.noted, nvs.bad)
    return (_title(number, scene), *(duration(t) for t in times))


def benign_row(number: int | None, scene: Scene, seen: Seens) -> tuple[str, ...]:
    """A trifle's row."""
    return (_title(number, scene), *(accusations(one) for one in seen))


def duration(seconds: float | None) -> str:
    """``3 s``, ``12 min``, ``8.0 h``; seconds that have begun count."""
    if seconds is None:
        return "never"
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def accusations(seen: Seen) -> str:
    """How often and for how long."""
    if not seen.spans:
        return "0"
    if seen.spans[-1][1] is None:
        return f"{len(seen.spans)}, stays"
    return f"{len(seen.spans)}, {duration(sum((end or 0.0) - begin for begin, end in seen.spans))}"


def _title(number: int | None, scene: Scene) -> str:
    return scene.name if number is None else f"{scene.name} [{number}]"


def section(title: str, text: str, head: tuple[str, ...], row: Row, seen: Mapping[Scene, Seens]) -> str:
    """A table with what there is to say of it, and remarks below."""
    notes = list(dict.fromkeys(scene.note for scene in seen if scene.note))
    rows = [row(notes.index(s.note) + 1 if s.note else None, s, three) for s, three in seen.items()]
    remarks = "\n\n".join(fill(f"[{number}] {note}.") for number, note in enumerate(notes, 1))
    return f"## {title}\n\n{fill(text)}\n\n{Table(head, rows).markdown()}\n\n{remarks}\n"


def page(faults: Mapping[Scene, Seens], elsewhere: Mapping[Scene, Seens], benign: Mapping[Scene, Seens]) -> str:
    """docs/detection.md."""
    of_faults = ("fault", "ibmon finding", "ibmon unfit", "gpud Unhealthy", "NVSentinel event", "NVSentinel fatal")
    of_others = ("ibmon", "gpud", "NVSentinel")
    return "\n".join(
        [
            f"# Detection\n\n{fill(HEAD)}\n",
            section("Faults", FAULTS_TEXT, of_faults, fault_row, faults),
            section("Another's fault", ELSEWHERE_TEXT, ("not this node's fault", *of_others), benign_row, elsewhere),
            section("No faults", BENIGN_TEXT, ("no fault", *of_others), benign_row, benign),
        ]
    )


def main(*, write: bool) -> int:
    """Print the page, and with `write` replace it; 1 where ibmon accuses a node that is fit, which it must not."""
    faults = {scene: everyone(scene) for scene in FAULTS}
    elsewhere = {scene: everyone(scene) for scene in ELSEWHERE}
    benign = {scene: everyone(scene) for scene in BENIGN}
    text = page(faults, elsewhere, benign)
    print(text)
    if write:
        PAGE.write_text(text, encoding="utf-8")
    return int(any(seen[0].spans for seen in benign.values()))
