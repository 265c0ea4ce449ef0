"""One scene a rule: facts in which it speaks, so that the documents show what ibmon really says.

Pure, and for documents only: the daemon does not load it.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, Final

from ibmon.health import correlate
from ibmon.health.correlate import NodeFacts
from ibmon.health.facts import GBPS, Condition, DeviceFacts, Outage, PortFacts, Verdict
from ibmon.health.settings import Rule, of_rule
from ibmon.health.windows import Moment, Window
from ibmon.model import Now, Pci, PhysicalState, PortId, PortState, Role

PORT: Final = PortId("mlx5_3", 1)
NOW: Final = Now(1_000_000.0, 1_800_000_000.0)
BOOT: Final = "boot"


def _ago(seconds: float) -> Moment:
    return Moment(NOW.monotonic - seconds, NOW.wall - seconds, BOOT)


def _rises(count: int) -> Window:
    """So many rises in the last five minutes, in five different ones."""
    window = Window()
    for minute in range(5):
        share = count // 5 + (count % 5 if minute == 4 else 0)
        if share:
            before = 60.0 * (5 - minute)
            window = window.add(share, Now(NOW.monotonic - before, NOW.wall - before), BOOT)
    return window


def _risen(key: str, count: int) -> dict[str, Any]:
    return {"windows": {key: _rises(count)}, "present": frozenset({key})}


_PCI: Final = Pci("0000:1a:00.0", max_speed=32_000_000_000, max_width=16)

_PORT_SCENES: Final[Mapping[str, dict[str, Any]]] = {
    "port-down": {"state": PortState.DOWN, "physical_state": PhysicalState.POLLING},
    "port-init": {"state": PortState.INIT},
    "rate-low": {"rate": 200 * GBPS, "width": 2},
    "device-missing": {"listed": False, "state": None, "device": DeviceFacts(bound_to="", function_present=False)},
    "link-flap": {"flaps": tuple(_ago(3600.0 * hours) for hours in (9, 4, 1))},
    "flap-storm": {"transitions": tuple(_ago(60.0 * minutes) for minutes in range(10, 0, -1))},
    "long-outage": {"outages": tuple(Outage(_ago(3600.0 * hours), 45.0) for hours in (9, 4, 1))},
    "symbol-errors": _risen("counters/symbol_error", 34),
    "gross-errors": _risen("counters/symbol_error", 260),
    "link-recovery": _risen("counters/link_error_recovery", 4),
    "receive-errors": _risen("counters/port_rcv_errors", 120),
    "link-integrity": _risen("counters/local_link_integrity_errors", 6),
    "transmit-discards": _risen("counters/port_xmit_discards", 45_000),
    "roce-crc": _risen("phy/rx_crc_errors_phy", 130),
    "pause-storm": _risen("phy/tx_pause_storm_error_events", 1),
    "gid-missing": {"link_layer": "Ethernet", "gid0": 0},
    "module-temperature": {"device": DeviceFacts(temperatures={"module0": 82.5})},
    "pkey-missing": {"pkey0": 0x7FFF},
    "retransmits": _risen("hw/packet_seq_err", 4_200),
    "qp-broken": _risen("hw/req_transport_retries_exceeded", 2),
    "pcie-degraded": {"device": DeviceFacts(pci=_PCI, pci_speed=32_000_000_000, pci_width=8)},
    "driver-fault": {"state_errno": errno.ENOLINK},
    "chardev-missing": {"device": DeviceFacts(uverbs=None, verbs_known=True)},
    "counter-saturated": {
        "saturated": frozenset({"counters/link_downed"}),
        "present": frozenset({"counters/link_downed"}),
    },
    "device-stalled": {"stalled": True, "device": DeviceFacts(siblings_answer=True)},
    "monitor-blind": {"failed_polls": 6, "state_errno": errno.EIO},
}
_NODE_SCENES: Final[Mapping[str, dict[str, Any]]] = {
    "all-devices-missing": {"names": frozenset(), "expected_devices": frozenset(f"mlx5_{n}" for n in range(8))},
    "repeat-offender": {"drains": tuple(_ago(86400.0 * days) for days in (20, 9, 1))},
}


def finding(rule: Rule) -> str:
    """What a finding of the rule reads like: rule, subject, what was observed and the limit."""
    return f"{rule.id} {_subject(rule)} {_words(rule)}".replace("  ", " ")


def _subject(rule: Rule) -> str:
    return {"port": str(PORT), "device": PORT.device, "node": ""}[rule.scope]


def _words(rule: Rule) -> str:
    said = _said(rule)
    words = said.words if not said.counter or said.counter in said.words else f"{said.counter} {said.words}"
    if rule.counts or said.reach == "info":
        return words
    # As the judge writes it: for how long, and the hold that was passed where it is critical.
    return f"{words} {rule.hold + 2:g}s>{rule.hold:g}s" if said.reach == "critical" else f"{words} {rule.hold + 2:g}s"


def _said(rule: Rule) -> Condition:
    chosen = of_rule(rule)
    if rule.id in _NODE_SCENES:
        usual: dict[str, Any] = {
            "names": frozenset({"mlx5_0"}), "expected_devices": frozenset({"mlx5_0"}), "failed_listings": 0,
            "ports": {}, "ever_listed": True, "now": NOW, "boot": BOOT,
        }  # fmt: skip
        facts = NodeFacts(**{**usual, **_NODE_SCENES[rule.id]})
        everything = {**dict.fromkeys(correlate.NODE_RULES, chosen), rule.id: chosen}
        return correlate.conditions(facts, everything)[rule.id]
    return next(c for c in rule.check(_facts(rule.id), chosen) if c.verdict is Verdict.BAD)


def _facts(rule: str) -> PortFacts:
    """A 400 Gb/s port that is well, but for the scene."""
    well = PortFacts(
        id=PORT, role=Role.COMPUTE, link_layer="InfiniBand", listed=True, stalled=False, state=PortState.ACTIVE,
        physical_state=PhysicalState.LINK_UP, rate=400 * GBPS, width=4, speed_word="NDR", expected_rate=400 * GBPS,
        best_rate=400 * GBPS, fresh=True, now=NOW, boot=BOOT, active_for=NOW.monotonic,
    )  # fmt: skip
    return well._replace(**_PORT_SCENES[rule])
