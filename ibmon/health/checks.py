"""The checks of state-like rules: what the newest read of a port or device shows. Pure, one function a rule."""

from __future__ import annotations

import errno
import math

from ibmon.health import kernel_log
from ibmon.health.facts import GBPS, GOOD, UNKNOWN, Condition, PortFacts, Verdict, gbps, state_words
from ibmon.health.settings import Settings
from ibmon.model import PhysicalState, PortState

FALLBACK_RATES = frozenset({("SDR", 4, 10 * GBPS), ("SDR", 1, 5 * GBPS // 2)})
"""What the kernel prints for a speed it does not know (core/sysfs.c:rate_show falls into the SDR case)."""

ROCE_FALLBACK_RATE = ("QDR", 4, 40 * GBPS)
"""What mlx5 prints for an Ethernet port whose mode it does not know (hw/mlx5/main.c:mlx5_query_port_roce)."""

FULL_MEMBER = 0x8000
"""The bit that makes a P_Key that of a full member (InfiniBand Architecture Specification 1, 10.9.1)."""

NO_PKEY = frozenset({0x0000, 0x7FFF})
"""An empty entry, and limited membership of the default partition: two such ports cannot talk to each other."""

COOLED = 5.0
"""Degrees that a module must be below its limit to be cool again (UFM: 5 degrees for 15 minutes)."""

Conditions = tuple[Condition, ...]


def _bad(observed: float | str | None, limit: float | str | None, words: str) -> Conditions:
    return (Condition(Verdict.BAD, observed, limit, words),)


def trained(facts: PortFacts) -> bool:
    """LinkUp, but nobody has brought the port up: INIT or ARMED is a subnet manager's matter, not the cable's."""
    return facts.state in (PortState.INIT, PortState.ARMED) and facts.physical_state in (PhysicalState.LINK_UP, None)


def port_down(facts: PortFacts, _: Settings) -> Conditions:
    """An expected port that is not ACTIVE and has no link."""
    if not facts.fresh or facts.state is None or not facts.listed:
        return (UNKNOWN,)
    if facts.active:
        return (GOOD,)
    if trained(facts):
        return (UNKNOWN,)  # the cable is well, but a port that came back only as far as INIT has not come back
    return _bad(state_words(facts), "ACTIVE", state_words(facts))


def port_init(facts: PortFacts, _: Settings) -> Conditions:
    """A port whose link is up and that waits for a subnet manager."""
    if not facts.fresh or facts.state is None or not facts.listed or "port-init" in facts.explained:
        return (UNKNOWN,)
    if trained(facts):
        return _bad(state_words(facts), "ACTIVE", state_words(facts))
    # Down is worse than waiting, and says nothing about whether the subnet manager is back.
    return (GOOD,) if facts.active else (UNKNOWN,)


def rate_unknown(facts: PortFacts) -> bool:
    """Whether what an ACTIVE port shows below its expected rate may be the kernel's word for a speed it cannot name.

    Where this boot has shown the expected rate, the kernel can name it.
    """
    if not facts.active or facts.rate is None or facts.expected_rate is None or facts.rate >= facts.expected_rate:
        return False
    shown = (facts.speed_word or "SDR", facts.width, facts.rate)
    fallback = shown in FALLBACK_RATES or (facts.link_layer == "Ethernet" and shown == ROCE_FALLBACK_RATE)
    return fallback and (facts.best_rate is None or facts.best_rate < facts.expected_rate)


def rate_low(facts: PortFacts, _: Settings) -> Conditions:
    """An ACTIVE port below its expected rate; one that may only be a rate without a name accuses nobody."""
    if not facts.fresh or not facts.listed or not facts.active:
        return (UNKNOWN,)  # a rate says nothing while the port is not ACTIVE
    if facts.rate is None or facts.expected_rate is None:
        return (UNKNOWN,)
    if facts.rate >= facts.expected_rate:
        return (GOOD,)
    words = f"{gbps(facts.rate)}<{gbps(facts.expected_rate)}Gb/s"
    if facts.width is not None:
        words += f" {facts.width}X"
    if rate_unknown(facts):
        words = f"rate unknown, kernel says {words}"
        return (Condition(Verdict.BAD, facts.rate / GBPS, facts.expected_rate / GBPS, words, "warning"),)
    return _bad(facts.rate / GBPS, facts.expected_rate / GBPS, words)


def device_missing(facts: PortFacts, _: Settings) -> Conditions:
    """An expected device that is not in class/infiniband, and whose PCI function does not explain it."""
    if facts.listed is None or "device-missing" in facts.explained:
        return (UNKNOWN,)
    if facts.listed:
        # A device that is listed is back when its port is: a card that returned without a link has not returned.
        return (GOOD,) if facts.active and facts.fresh else (UNKNOWN,)
    device = facts.device
    if facts.given_away:
        return (GOOD,)
    if device.function_present and device.bound_to:
        return (UNKNOWN,)  # the driver still has it: something stranger than a lost card
    words = "absent" if not device.function_present else "absent, no driver"
    return _bad("absent", "present", words)


def of_node(_: PortFacts, __: Settings) -> Conditions:
    """Rules of the whole node are looked at in `correlate.py`."""
    return ()


def device_stalled(facts: PortFacts, _: Settings) -> Conditions:
    """A device whose read does not return. One that is not there does not answer either."""
    if not facts.stalled:
        return (GOOD,) if facts.listed else (UNKNOWN,)
    evidence = facts.device.siblings_answer or not kernel_log.FAULTS.isdisjoint(facts.device.kernel_log)
    return (Condition(Verdict.BAD, "no answer", None, "not answering", "critical" if evidence else "warning"),)


def monitor_blind(facts: PortFacts, settings: Settings) -> Conditions:
    """A port whose state could not be read many times in a row, though its device is there."""
    if not facts.listed or facts.stalled:
        return (UNKNOWN,)
    if facts.failed_polls == 0:
        return (GOOD,) if facts.fresh else (UNKNOWN,)
    polls = settings.polls or 1
    if facts.failed_polls < polls:
        return (UNKNOWN,)
    why = errno.errorcode.get(facts.state_errno or 0, "?")
    words = f"state unreadable {why} {facts.failed_polls}x"
    return (Condition(Verdict.BAD, facts.failed_polls, polls, words, "warning"),)


def driver_fault(facts: PortFacts, _: Settings) -> Conditions:
    """The driver says that the device is dead: ENOLINK on reads, or evidence in the kernel log."""
    log = facts.device.kernel_log
    if facts.state_errno == errno.ENOLINK:
        return _bad("ENOLINK", None, "driver says dead ENOLINK")
    if "unrecoverable" in log:
        return _bad("unrecoverable", None, "kernel log: unrecoverable")
    faults = [kind for kind in log if kind in kernel_log.FAULTS]
    if faults:
        # Timeouts that ended say that something is wrong, not that the device is dead: only those two words drain.
        return (Condition(Verdict.BAD, len(faults), 1, f"kernel log: {len(faults)}x driver trouble", "warning"),)
    hints = [kind for kind in ("power", "queue", "temperature") if kind in log]
    if hints:
        return (Condition(Verdict.BAD, hints[0], None, f"kernel log: {' and '.join(hints)}", "warning"),)
    # A device that does not answer, or with another error, may be as dead as it was.
    return (GOOD,) if facts.listed and facts.fresh else (UNKNOWN,)


def pcie_degraded(facts: PortFacts, _: Settings) -> Conditions:
    """A PCIe link that runs below what both of its ends can do."""
    pci = facts.device.pci
    if pci is None or not facts.listed:
        return (UNKNOWN,)
    now, best = (facts.device.pci_speed, facts.device.pci_width), (pci.expected_speed, pci.expected_width)
    if None in now or None in best:
        return (UNKNOWN,)
    speed, width = now
    best_speed, best_width = best
    if speed is None or width is None or best_speed is None or best_width is None:
        return (UNKNOWN,)
    if speed >= best_speed and width >= best_width:
        return (GOOD,)
    shown, can = f"{speed / 1e9:g}GT/s x{width}", f"{best_speed / 1e9:g}GT/s x{best_width}"
    return _bad(shown, can, f"PCIe {shown}<{can}")


def chardev_missing(facts: PortFacts, _: Settings) -> Conditions:
    """A device without the character device that jobs open, while others of the node have theirs."""
    if not facts.listed or not facts.device.verbs_known:
        return (UNKNOWN,)
    if facts.device.uverbs is not None:
        return (GOOD,)
    return _bad("absent", "uverbs", "no uverbs device")


def gid_missing(facts: PortFacts, _: Settings) -> Conditions:
    """A RoCE port that carries data for nobody: without a GID it has no address."""
    if facts.link_layer not in (None, "Ethernet"):
        return (GOOD,)
    if facts.link_layer is None or not facts.fresh or not facts.listed or not facts.active or facts.gid0 is None:
        return (UNKNOWN,)
    return (GOOD,) if facts.gid0 else _bad("zero", "set", "GID 0 is zero")


def pkey_missing(facts: PortFacts, _: Settings) -> Conditions:
    """An InfiniBand port that is no full member of any partition."""
    if facts.link_layer not in (None, "InfiniBand"):
        return (GOOD,)
    if facts.link_layer is None or not facts.fresh or not facts.listed or not facts.active or facts.pkey0 is None:
        return (UNKNOWN,)
    shown = f"{facts.pkey0:#06x}"
    return _bad(shown, f"{FULL_MEMBER:#06x}", f"P_Key {shown}") if facts.pkey0 in NO_PKEY else (GOOD,)


def module_temperature(facts: PortFacts, settings: Settings) -> Conditions:
    """The hottest module of the device, against both limits; one that hovers about the limit has not cooled."""
    if not facts.listed or not facts.fresh or not facts.device.temperatures:
        return (UNKNOWN,)
    module, celsius = max(facts.device.temperatures.items(), key=lambda item: item[1])
    for limit, reach in ((settings.critical, "critical"), (settings.warning, "warning")):
        if limit is not None and celsius >= limit:
            words = f"{module} {celsius:g}C>={limit:g}C"
            return (Condition(Verdict.BAD, celsius, limit, words, "critical" if reach == "critical" else "warning"),)
    lowest = min((limit for limit in (settings.critical, settings.warning) if limit is not None), default=math.inf)
    return (GOOD._replace(near=celsius > lowest - COOLED),)


def counter_saturated(facts: PortFacts, _: Settings) -> Conditions:
    """Counters at the maximum of their field: at least this, and blind until somebody clears them."""
    return tuple(
        Condition(
            Verdict.BAD if key in facts.saturated else Verdict.GOOD,
            "saturated",
            None,
            "at its maximum",
            "info",
            counter=key.partition("/")[2],
        )
        for key in sorted(facts.present)
        if key.startswith("counters/")
    )
