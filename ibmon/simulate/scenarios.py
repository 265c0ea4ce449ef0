"""The stories that `ibmon demo` tells: what happens to the simulated node, what ibmon makes of it, and how it ends.

Data only. Holds are seconds instead of minutes so that a story fits into one; everything else is as on a real node.
`ibmon.simulate.demo` plays them on the daemon, the tests play them in virtual time: neither may need the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ibmon.model import NodeFitness
from ibmon.recording import Frame
from ibmon.simulate.dgx import COMPUTE, STORAGE, dgx
from ibmon.simulate.script import Script

Sections = Mapping[str, Mapping[str, str | bool]]
"""Configuration by section and key, as `ibmon config example` has them."""

HOLDS: Final = MappingProxyType({"alert_hold": "4s", "hold": "10s", "recover": "15s"})

COMMON: Final[Sections] = MappingProxyType(
    {
        "sampling": {"state_interval": "1s", "counter_interval": "1s", "slow_interval": "2s", "read_deadline": "2s"},
        "inventory": {"mode": "declared"},
        "rules.port-down": HOLDS,
        "rules.rate-low": HOLDS,
        "rules.device-missing": HOLDS,
        "action": {"mode": "drain", "scheduler": "none", "boot_grace": "0s"},
        "action.limits": {"max_drained": "2%"},
    }
)

PORTS: Final = """\
[[port]]
match = "mlx5_[0-7]/1"
role = "compute"
rate = 400
[[port]]
match = "mlx5_[89]/1"
role = "storage"
rate = 200
[[port]]
match = "mlx5_1[01]/1"
role = "management"
"""
"""The inventory of the simulated node (`ibmon.simulate.dgx`)."""


class Ending(NamedTuple):
    """How a story has to end, and what must have been seen on the way.

    `findings` are the rules that still hold at the end, `shown` those that held at some time, `drains` is how often
    the node was taken from the scheduler.
    """

    fitness: NodeFitness = NodeFitness.FIT
    drained: bool = False
    findings: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()
    drains: int = 0

    def text(self) -> str:
        """``fit, drained 1x and given back, findings on the way: port-down``."""
        drains = (
            f"drained {self.drains}x{'' if self.drained else ' and given back'}" if self.drains else "never drained"
        )
        return f"{self.fitness.value}, {drains}, findings on the way: {_words(self.shown)}"


class Scenario(NamedTuple):
    """One story.

    Attributes:
        title: one line, for the list.
        story: adds to the script what happens; traffic is there already.
        chapters: seconds, and a sentence that says what happens and what ibmon concludes.
        end: seconds after which it is over.
        ending: what is verified.
        config: what differs from `COMMON`, by section and key.
    """

    title: str
    story: Callable[[Script], None]
    chapters: tuple[tuple[float, str], ...]
    end: float
    ending: Ending = Ending()
    config: Sections = MappingProxyType({})

    def frames(self) -> Iterator[Frame]:
        """The node and what happens to it. Endless, as traffic is."""
        script = Script(dgx())
        script.traffic(0.5, math.inf, load=0.6)
        self.story(script)
        return script.frames()

    def chapter(self, at: float) -> str:
        """The sentence for this point of the story."""
        return [text for begins, text in self.chapters if begins <= at][-1]

    def toml(self, extra: Sections | None = None) -> str:
        """The configuration as a file; `extra` on top."""
        sections: dict[str, dict[str, str | bool]] = {}
        for layer in (COMMON, self.config, extra or {}):
            for name, keys in layer.items():
                sections[name] = {**sections.get(name, {}), **keys}
        lines = [PORTS]
        for name, keys in sections.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {_value(value)}" for key, value in keys.items()]
        return "\n".join(lines) + "\n"


def _value(value: str | bool) -> str:  # noqa: FBT001 - a value of a file
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


class Witness:
    """Compares what was seen of a story with how it has to end; both ways to play one report to it."""

    def __init__(self, ending: Ending) -> None:
        self._ending = ending
        self._shown: set[str] = set()
        self._drained = False
        self._drains = 0
        self._last = (NodeFitness.UNKNOWN, frozenset[str]())

    def see(self, fitness: NodeFitness, findings: frozenset[str], *, drained: bool) -> None:
        """One look at the node: its fitness, the rules of its findings, and whether it is drained."""
        self._drains += drained and not self._drained
        self._drained = drained
        self._shown |= findings
        self._last = (fitness, findings)

    def complaints(self) -> list[str]:
        """What is not as it has to be; empty when all is."""
        fitness, findings = self._last
        pairs = (
            ("fitness", fitness.value, self._ending.fitness.value),
            ("drained", self._drained, self._ending.drained),
            ("findings", _words(findings), _words(self._ending.findings)),
            ("findings on the way", _words(self._shown), _words(self._ending.shown)),
            ("drains", self._drains, self._ending.drains),
        )
        return [f"{what}: {found}, not {wanted}" for what, found, wanted in pairs if found != wanted]


def _words(rules: set[str] | frozenset[str]) -> str:
    return ", ".join(sorted(rules)) or "none"


# ------------------------------------------------------------------------------------------------------------ stories


def _drained_for(*rules: str) -> Ending:
    """Drained once for these rules, given back, and fit in the end."""
    return Ending(shown=frozenset(rules), drains=1)


def _cable(script: Script) -> None:
    script.link_down(8, "mlx5_3/1")
    script.link_up(34, "mlx5_3/1")


def _healthy(script: Script) -> None:
    for port in COMPUTE[:2]:
        script.ramp(5, f"{port}/1", "port_xmit_discards", per_second=3, seconds=10)
    script.link_down(16, "mlx5_6/1")
    script.link_up(18, "mlx5_6/1")
    path = dgx().port_path("mlx5_1/1")
    script.add(Frame(t=24, files={f"{path}/counters/{name}": "0\n" for name in ("link_downed", "port_rcv_errors")}))


def _flapping(script: Script) -> None:
    script.flap(8, "mlx5_2/1", seconds=2, times=5, every=4)


def _half_rate(script: Script) -> None:
    script.link_down(8, "mlx5_7/1")
    script.half_rate(10, "mlx5_7/1")
    script.link_down(34, "mlx5_7/1")
    script.link_up(36, "mlx5_7/1")


def _vanished(script: Script) -> None:
    script.vanish(8, "mlx5_5", how="bus")
    script.come_back(34, "mlx5_5")


def _symbol_errors(script: Script) -> None:
    script.symbol_ramp(8, "mlx5_4/1", per_second=1, seconds=52)
    script.symbol_ramp(60, "mlx5_4/1", per_second=6, seconds=90)
    script.ramp(30, "mlx5_4/1", "port_rcv_errors", per_second=1, seconds=120)


def _subnet_manager(script: Script) -> None:
    for device in (*COMPUTE, *STORAGE):
        script.init(8, f"{device}/1")
        script.link_up(34, f"{device}/1")


def _hung(script: Script) -> None:
    path = dgx().devices["mlx5_2"].path
    script.add(Frame(t=8, block=(path,)))
    script.add(Frame(t=40, unblock=(path,)))


def _reboot(script: Script) -> None:
    devices = dgx().devices
    script.link_down(6, "mlx5_3/1")
    for device in devices:
        script.vanish(22, device, how="class")
    script.add(Frame(t=22, boot_id="00000000-0000-4000-8000-000000000002", uptime=0.0))
    for number, device in enumerate(devices):
        script.come_back(25 + number / 10, device)
    script.flap(28, "mlx5_0/1", seconds=1, times=2, every=3)


SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        "cable": Scenario(
            title="a cable fails and is mended: alert, drain, give back",
            story=_cable,
            chapters=(
                (0, "All twelve ports are up; traffic flows."),
                (8, "The cable of mlx5_3/1 fails. The port is shown at once; the hold of 10 s begins."),
                (12.5, "4 s: alert. The node stays in service: a short dip is no reason to drain."),
                (18.5, "10 s: the node is unfit and drained. Running jobs go on, new ones go elsewhere."),
                (34, "mlx5_3/1 is back. It must stay so for 15 s before anybody relies on it."),
                (50, "15 s without a break: the drain was ours, so it is taken back. The node is fit."),
            ),
            end=62,
            ending=_drained_for("port-down"),
        ),
        "healthy": Scenario(
            title="a good node on a normal day: congestion, one short dip, counters reset",
            story=_healthy,
            chapters=(
                (0, "All twelve ports are up; traffic flows."),
                (5, "Congestion: two ports discard packets. That is the fabric's load and no fault of this node."),
                (16, "mlx5_6/1 dips for two seconds. It is seen and counted; no alert, no drain."),
                (19, "It was over before the alert's hold of 4 s: nothing remains but one flap on record."),
                (24, "Somebody resets counters of mlx5_1/1. A reset is neither a fault nor a repair."),
                (26, "Nothing is left to say: no alert, no drain, a fit node."),
            ),
            end=32,
        ),
        "flapping-cable": Scenario(
            title="a cable bounces, each time too shortly for a hold: the count drains",
            story=_flapping,
            chapters=(
                (0, "All twelve ports are up; traffic flows."),
                (8, "The link of mlx5_2/1 bounces: 2 s down, 2 s up. No dip lasts long enough for port-down."),
                (16.8, "But each change is counted. Five changes within the window: a warning."),
                (26.8, "Ten changes: flap-storm is critical. The node is unfit and drained."),
                (29, "The link has come to rest. It must be quiet for 20 s, counted from its last change."),
                (47, "Quiet for 20 s: the drain is taken back. The warning ends when the window has passed, too."),
            ),
            end=56,
            ending=_drained_for("flap-storm"),
            config={"rules.flap-storm": {"window": "30s", "recover": "20s"}},
        ),
        "half-rate": Scenario(
            title="a link comes back with half of its lanes: ACTIVE, and still a fault",
            story=_half_rate,
            chapters=(
                (0, "All twelve ports are up; traffic flows."),
                (8, "The link of mlx5_7/1 retrains."),
                (10, "It is ACTIVE again, with two lanes of four: 200 of 400 Gb/s. One slow link slows a whole job."),
                (15, "4 s: alert with the rate found and the rate expected."),
                (21, "10 s: the node is unfit and drained."),
                (34, "The connector was cleaned: the link trains with all lanes. It must stay so for 15 s."),
                (52, "15 s at full rate: the node is given back."),
            ),
            end=62,
            ending=_drained_for("rate-low"),
        ),
        "vanished-hca": Scenario(
            title="a card falls off the PCI bus",
            story=_vanished,
            chapters=(
                (0, "All twelve ports are up; traffic flows."),
                (8, "mlx5_5 is gone, from class/infiniband and from the bus. It is expected, so it is missed."),
                (12.5, "4 s: alert. A card that is gone gives no error to count; only the inventory knows it."),
                (18.5, "10 s: the node is unfit and drained."),
                (34, "The card is back. Its port must be ACTIVE for 15 s."),
                (50, "15 s without a break: the node is given back."),
            ),
            end=62,
            ending=_drained_for("device-missing"),
        ),
        "symbol-errors": Scenario(
            title="bit errors ramp up on a link that never goes down (2 min 50 s)",
            story=_symbol_errors,
            chapters=(
                (0, "All twelve ports are up; traffic flows."),
                (8, "Symbol errors rise on mlx5_4/1. A few say nothing: links of this speed always have some."),
                (30, "Packets arrive broken. That needs no long look: receive-errors warns."),
                (60, "Six symbol errors a second now. A bit error ratio needs errors in three separate minutes."),
                (132, "Seen for long enough: symbol-errors. The ratio is above the link's specification."),
                (150, "It alerts, and drains only where a site says so, once it knows its own links' numbers."),
            ),
            end=170,
            ending=Ending(
                NodeFitness.WATCH,
                findings=frozenset({"symbol-errors", "receive-errors"}),
                shown=frozenset({"symbol-errors", "receive-errors"}),
            ),
            config={"rules.symbol-errors": {"window": "130s"}},
        ),
        "subnet-manager-restart": Scenario(
            title="every port waits for a subnet manager: not this node's fault",
            story=_subnet_manager,
            chapters=(
                (0, "All twelve ports are up; traffic flows."),
                (8, "The subnet manager restarts: all InfiniBand ports go to INIT. Their cables are fine."),
                (11, "One cause for all: one line instead of ten, and fitness unknown instead of unfit."),
                (20, "No drain, however long it lasts; after a minute it would alert."),
                (34, "The subnet manager is back: ports are ACTIVE, the node is fit, nothing remains."),
            ),
            end=44,
        ),
        "hung-card": Scenario(
            title="reads of one card hang in its driver: the others stay fresh",
            story=_hung,
            chapters=(
                (0, "All twelve ports are up; traffic flows."),
                (8, "Reads of mlx5_2 no longer return. One thread waits in it; another goes on with the rest."),
                (11, "2 s: stalled. What it last said is not shown any more, as nobody knows whether it is true."),
                (16, "Alert. Not knowing is no fault yet: the node is unknown, and keeps its jobs."),
                (26, "The other cards answer, this one does not: evidence enough. The node is drained."),
                (40, "The card answers again. It must go on doing so for 15 s."),
                (56, "15 s of answers: the node is given back."),
            ),
            end=66,
            ending=_drained_for("device-stalled"),
            config={"rules.device-stalled": {"alert_hold": "4s", "hold": "14s", "recover": "15s"}},
        ),
        "reboot": Scenario(
            title="a drained node is rebooted: what was known survives, and the boot accuses nobody",
            story=_reboot,
            chapters=(
                (0, "All twelve ports are up; traffic flows."),
                (6, "The cable of mlx5_3/1 fails."),
                (16.5, "10 s: the node is unfit and drained."),
                (22, "Reboot. No card is there yet; the boot grace of 12 s accuses nobody for it."),
                (24, "The new daemon finds the drain at the scheduler and its own record of it: still ours."),
                (28, "The cards are back, mlx5_3/1 too. mlx5_0/1 bounces while it trains: not counted."),
                (35, "mlx5_3/1 must stay ACTIVE for 15 s before anybody relies on it, after a boot as always."),
                (41, "It was: the drain of before the reboot is taken back. The node is fit."),
            ),
            end=54,
            ending=_drained_for("port-down"),
            config={"action": {"boot_grace": "12s"}},
        ),
    }
)
"""By name; the first one is what `ibmon demo` plays."""
