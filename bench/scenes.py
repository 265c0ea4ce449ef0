"""The recordings of the detection table: one node, and what happens to it, fault by fault and trifle by trifle.

Data only; `bench.detection` plays them to ibmon and to the published rules of others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from ibmon.recording import Frame, Header
from ibmon.simulate.counters import zero_counters
from ibmon.simulate.dgx import COMPUTE, STORAGE, dgx
from ibmon.simulate.script import Script
from ibmon.simulate.tree import DOWN, POLLING, Pci, Port, Tree, device

T0 = 67.5
"""When things begin (seconds): 2.5 s before ibmon's next look at states, 22.5 s before gpud's, half a second before
NVSentinel's; ibmon's next look at rates and rare counters is 52.5 s away, nearly its longest."""

HOUR = 3600.0
NOISE = "mlx5_3/1"
"""The port that things happen to."""


class Scene(NamedTuple):
    """One recording. `end` is when it is over."""

    name: str
    story: Callable[[Script, Tree], None]
    end: float = T0 + 1500
    tree: Callable[[], Tree] = dgx
    header: Header = Header()
    start: float = T0
    note: str = ""

    def frames(self) -> Iterator[Frame]:
        """The node, and what happens."""
        tree = self.tree()
        script = Script(tree)
        self.story(script, tree)
        script.add(Frame(t=self.end))
        return script.frames()


def counters(tree: Tree, t: float, values: dict[str, int], *ports: str) -> Frame:
    """Files of counters/ (or of another directory of the port) set to values."""
    return Frame(t=t, files={f"{tree.port_path(p)}/{file}": f"{n}\n" for p in ports for file, n in values.items()})


# ------------------------------------------------------------------------------------------------------------- faults


def _down(script: Script, _: Tree) -> None:
    script.link_down(T0, NOISE)


def _bounces(script: Script, _: Tree) -> None:
    # Down half a second after a look at the states, up again half a second before the next.
    script.flap(T0 - 2, NOISE, seconds=2, times=3, every=4 * HOUR)


def _half(script: Script, _: Tree) -> None:
    script.half_rate(T0, NOISE)


def _vanished(script: Script, _: Tree) -> None:
    script.vanish(T0, "mlx5_3", how="bus")


def _gross(script: Script, _: Tree) -> None:
    script.symbol_ramp(T0, NOISE, per_second=0.5, seconds=2 * HOUR, every=10)


UP_LONG = 7567.5
"""Begin of what is judged over the window of a bit error ratio: the port has been up for one (125 min at 400 Gb/s)."""


def _slow_errors(script: Script, _: Tree) -> None:
    script.symbol_ramp(UP_LONG, NOISE, per_second=1 / 125, seconds=2 * HOUR, every=125)


def _init(script: Script, _: Tree) -> None:
    script.init(T0, NOISE)


def _hung(script: Script, tree: Tree) -> None:
    script.add(Frame(t=T0, block=(tree.devices["mlx5_3"].path,)))


def _all_gone(script: Script, tree: Tree) -> None:
    for name in tree.devices:
        script.vanish(T0, name, how="driver")


def _pcie(script: Script, tree: Tree) -> None:
    pci = tree.devices["mlx5_3"].pci
    if pci is not None:
        script.add(Frame(t=T0, files={f"{pci.path}/current_link_width": "8\n"}))


ALERTS = "alerts only, by default: sites let it drain once they know their own numbers"

FAULTS = (
    Scene("port down", _down),
    Scene(
        "link bounces for 2 s between two looks, every 4 h",
        _bounces,
        end=T0 + 8 * HOUR + 600,
        start=T0 - 2,
        note="the second bounce is a finding, the third drains; only counters tell of them",
    ),
    Scene("link at half of its rate", _half),
    Scene("one HCA off the bus", _vanished),
    Scene(
        "gross symbol errors (0.5/s, BER 1.25e-12)", _gross, end=T0 + 2 * HOUR,
        note=f"{ALERTS}; NVSentinel looks at an hour's count when the hour is over",
    ),
    Scene(
        "slow symbol errors (29/h, BER 2e-14)", _slow_errors, end=UP_LONG + 2 * HOUR, start=UP_LONG, note=ALERTS
    ),
    Scene("one port in INIT", _init, note="alerts only: a subnet manager's matter until it is known to be one node's"),
    Scene("reads of one card hang", _hung, note="gpud's and NVSentinel's loops wait in the same read"),
    Scene("all HCAs without their driver", _all_gone),
    Scene("PCIe link at half of its width", _pcie, note=ALERTS),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ trifles


def _leaf(script: Script, _: Tree) -> None:
    script.link_down(T0, NOISE)
    script.link_up(T0 + 120, NOISE)


def _subnet_manager(script: Script, _: Tree) -> None:
    for name in (*COMPUTE, *STORAGE):
        script.init(T0, f"{name}/1")
        script.link_up(T0 + 240, f"{name}/1")


def _boot(script: Script, _: Tree) -> None:
    for name in COMPUTE:
        script.link_down(0, f"{name}/1")
    for number, name in enumerate(COMPUTE):
        script.link_up(35 + 2 * number, f"{name}/1")
        script.flap(60 + 3 * number, f"{name}/1", seconds=4, times=4, every=25)


def _reset(script: Script, tree: Tree) -> None:
    zero = {f"counters/{name}": 0 for name in zero_counters()}
    script.add(counters(tree, T0, zero, *(f"{name}/1" for name in COMPUTE)))


SATURATED = {
    "counters/link_downed": 255,
    "counters/symbol_error": 65535,
    "counters/port_xmit_discards": 65535,
    "counters/local_link_integrity_errors": 15,
    "counters/excessive_buffer_overrun_errors": 15,
}


def _saturated(script: Script, tree: Tree) -> None:
    script.add(counters(tree, 0, SATURATED, NOISE))


def _congestion(script: Script, _: Tree) -> None:
    for name in COMPUTE:
        script.ramp(T0, f"{name}/1", "port_xmit_wait", per_second=5e5, seconds=600)
        script.ramp(T0, f"{name}/1", "port_xmit_discards", per_second=60, seconds=600)


def _busy(script: Script, tree: Tree) -> None:
    for step in range(60):
        script.add(counters(tree, T0 + 10 * step, {"hw_counters/rnr_nak_retry_err": 40 * (step + 1)}, NOISE))


def _with_functions() -> Tree:
    return dgx(vfs=1)


def _nothing(_: Script, __: Tree) -> None:
    pass


def _with_spare() -> Tree:
    """The node with one more card whose port was never cabled."""
    port = Port(state=DOWN, phys_state=POLLING, rate="10 Gb/sec (4X SDR)", lid="0xffff", sm_lid="0x0")
    pci = Pci(address="0000:6a:00.0", above="pci0000:69/0000:69:01.0")
    return dgx() | device("mlx5_12", ports=(port,), pci=pci, index=12)


def _management(script: Script, _: Tree) -> None:
    script.link_down(T0, "mlx5_10/1")


def _swap(script: Script, _: Tree) -> None:
    script.link_down(T0, NOISE)
    script.link_up(T0 + 40, NOISE)
    script.symbol_ramp(T0 + 41, NOISE, per_second=4, seconds=1, every=1)


def _unreadable(script: Script, tree: Tree) -> None:
    state = f"{tree.port_path(NOISE)}/state"
    script.add(Frame(t=T0, errnos={state: "EIO"}))
    script.add(Frame(t=T0 + 30, errnos={state: None}))


def _dip(script: Script, _: Tree) -> None:
    script.link_down(T0, NOISE)
    script.link_up(T0 + 50, NOISE)


def _dip_with(frame: Frame) -> Callable[[Script, Tree], None]:
    def story(script: Script, tree: Tree) -> None:
        _dip(script, tree)
        script.add(frame)

    return story


def renamed(tree: Tree, shift: int) -> Tree:
    """The same cards under other names: mlx5_N is mlx5_(N + shift), around."""
    count = len(tree.devices)

    def other(text: str) -> str:
        return re.sub(r"\bmlx5_(\d+)\b", lambda m: f"mlx5_{(int(m[1]) + shift) % count}", text)

    devices = {
        other(name): replace(
            placed,
            name=other(name),
            path=other(placed.path),
            entries=tuple(map(other, placed.entries)),
            parts=tuple(map(other, placed.parts)),
        )
        for name, placed in tree.devices.items()
    }
    files = {other(path): other(text) for path, text in tree.files.items()}
    links = {other(path): other(target) for path, target in tree.links.items()}
    return Tree(files, links, tree.dirs, devices)


def _rename(script: Script, tree: Tree) -> None:
    away = ("class/infiniband", "class/net", "class/infiniband_verbs", "class/infiniband_mad", "devices", "bus")
    script.add(Frame(t=T0, remove=away, dirs=tree.dirs, boot_id="00000000-0000-4000-8000-000000000002", uptime=0.0))
    script.add(renamed(tree, 4).frame(T0 + 40))


DROP = "to gpud every InfiniBand port that is not ACTIVE for 4 min has dropped"

ELSEWHERE = (
    Scene(
        "a leaf switch reboots: 2 min without a link",
        _leaf,
        note="one node alone cannot tell its switch's reboot from its own cable. After 60 s no new job gets the node; "
        "it is given back by itself 10 min after the link. Through the fleet controller the same on three nodes of a "
        "leaf is one fabric event, and no node is drained for it within 15 min (docs/controller.md)",
    ),
)
"""The node cannot be used for a while, and the fault is another's."""

BENIGN = (
    Scene("the subnet manager is away for 4 min", _subnet_manager),
    Scene(
        "boot: links come up one by one and bounce", _boot, header=Header(uptime=30.0),
        note="all three run from the first second on",
    ),
    Scene("counters are reset (`perfquery -R`)", _reset),
    Scene("a healthy port whose counters stand at their maximum", _saturated),
    Scene("congestion: xmit_wait, 60 discards/s", _congestion),
    Scene(
        "a busy receiver: RNR NAKs that were retried well", _busy,
        note="`rnr_nak_retry_err` counts what was repeated within the limit; NVSentinel calls one more fatal",
    ),
    Scene("virtual functions that are DOWN", _nothing, tree=_with_functions, note=DROP),
    Scene(
        "a spare port that was never cabled", _nothing, tree=_with_spare,
        note=f"{DROP}; to NVSentinel it is a card with fewer ports than its peers",
    ),
    Scene("the management interface loses its link", _management),
    Scene("a cable is swapped in 40 s, with 4 symbol errors after", _swap),
    Scene(
        "`state` cannot be read for 30 s (EIO)", _unreadable,
        note="one attribute that fails ends gpud's scan, and that is Unhealthy",
    ),
    Scene("one dip of 50 s", _dip),
    Scene("the same dip, and the daemon restarts in it", _dip_with(Frame(t=T0 + 20, restart=True))),
    Scene("the same dip, and the wall clock jumps a day ahead", _dip_with(Frame(t=T0 + 20, wall_step=86400.0))),
    Scene("the same dip, and the host sleeps for an hour", _dip_with(Frame(t=T0 + 20, suspend=3600.0))),
    Scene(
        "a reboot after which the devices have other names", _rename, end=T0 + 2400,
        note="ibmon's inventory is declared by PCI address; one declared by name means the names",
    ),
)  # fmt: skip
