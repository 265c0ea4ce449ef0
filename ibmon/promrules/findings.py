"""What nodes push to Alertmanager where they are told to, else these: an alert a rule, and what is about ibmon itself.

Names and labels are those of the push (`ibmon.alert.alerts`), so that routes and silences fit both. Nobody must load
these rules where nodes push: each fault would be told twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ibmon.alert.alerts import alert_name
from ibmon.config import Config
from ibmon.health import explain
from ibmon.health.counts import SPEC_BER, SPEC_ERRORS, span
from ibmon.health.rules import RULES
from ibmon.health.settings import Rule, Settings
from ibmon.model import Mode, PhysicalState, PortState
from ibmon.promrules.fleet import PUSHED
from ibmon.promrules.table import BRIDGED, NODE_OF, Alert, Group, Recording

FINDING: Final = "ibmon:finding:named"

_RAIL_OF: Final = f"max by (job, instance, device, port, rail) (last_over_time(ibmon_port_info[{BRIDGED}]))"
_HELD: Final = (
    "max by (job, instance, rule, severity, device, port) "
    f'(last_over_time(ibmon_finding{{severity!="info"}}[{BRIDGED}]))'
)
# A device that is not there may have no series to take a rail from: its findings go on without one.
_NAMED: Final = f"""\
(
  {_HELD}
  * on (job, instance, device, port) group_left (rail)
  {_RAIL_OF}
  or on (job, instance, rule, severity, device, port)
  {_HELD}
)
* on (job, instance) group_left (node)
{NODE_OF}"""

_FASTEST_SPEC: Final = 400e9
"""Bits per second for which the window of a rule is told whose window follows from the rate: 125 min."""


class _Reading(NamedTuple):
    """How an alert tells what was read.

    Attributes:
        shown: text; a template of the first result of `query` where there is one.
        query: PromQL; ``AT`` stands for the labels of the finding's own port, ``DEVICE`` and ``NODE`` for those of its
            device and node, ``WINDOW`` for the window of the rule.
        limit: what may be, where the rule has no number for it.
    """

    shown: str
    query: str = ""
    limit: str = ""


_NUMBER: Final = '{{ . | first | value | printf "%.0f" }}'


def _word(states: type[PortState | PhysicalState]) -> str:
    """A template that gives the kernel's word for its number."""
    first, *rest = states
    words = f"{{{{ $is := . | first | value }}}}{{{{ if eq $is {first.value}.0 }}}}{first.name}"
    return words + "".join(f"{{{{ else if eq $is {s.value}.0 }}}}{s.name}" for s in rest) + "{{ end }}"


def _rises(*metrics: str) -> _Reading:
    """The largest rise of some counters within the window of the rule."""
    return _Reading(f"{_NUMBER} in WINDOW", f"max({' or '.join(f'increase({m}AT[WINDOW])' for m in metrics)})")


_ERRORS: Final = _rises("ibmon_port_symbol_error_total", "ibmon_port_phy_rx_pcs_symbol_err_phy_total")
_READINGS: Final[Mapping[str, _Reading]] = {
    "port-down": _Reading(_word(PortState), "ibmon_port_stateAT", "ACTIVE"),
    "port-init": _Reading(_word(PortState), "ibmon_port_stateAT", "ACTIVE"),
    "rate-low": _Reading(
        f"{_NUMBER} % of its rate",
        "100 * ibmon_port_rate_bytes_per_secondAT / ibmon_port_expected_rate_bytes_per_secondAT",
        "100 %",
    ),
    "device-missing": _Reading(f"{_NUMBER} missing", "ibmon_devices_expectedNODE - ibmon_devices_presentNODE", "none"),
    "all-devices-missing": _Reading(f"{_NUMBER} of all are there", "ibmon_devices_presentNODE", "all"),
    "link-flap": _Reading(f"{_NUMBER} in WINDOW", "increase(ibmon_flap_episodes_totalAT[WINDOW])"),
    "flap-storm": _Reading(f"{_NUMBER} changes in WINDOW", "changes(ibmon_port_stateAT[WINDOW])"),
    "long-outage": _Reading("outages of 30 s or more in WINDOW"),
    "symbol-errors": _ERRORS,
    "gross-errors": _ERRORS,
    "link-recovery": _rises("ibmon_port_link_error_recovery_total"),
    "receive-errors": _rises("ibmon_port_rcv_errors_total"),
    "link-integrity": _rises(
        "ibmon_port_local_link_integrity_errors_total", "ibmon_port_excessive_buffer_overrun_errors_total"
    ),
    "transmit-discards": _rises("ibmon_port_xmit_discards_total"),
    "roce-crc": _rises(
        "ibmon_port_phy_rx_crc_errors_phy_total",
        "ibmon_port_phy_rx_symbol_err_phy_total",
        "ibmon_port_hw_rx_icrc_encapsulated_total",
    ),
    "pause-storm": _rises(
        "ibmon_port_phy_tx_pause_storm_error_events_total", "ibmon_port_phy_tx_pause_storm_warning_events_total"
    ),
    "gid-missing": _Reading("GID 0 is all zero", limit="an address"),
    "retransmits": _rises(
        "ibmon_port_hw_local_ack_timeout_err_total",
        "ibmon_port_hw_packet_seq_err_total",
        "ibmon_port_hw_out_of_sequence_total",
        "ibmon_port_hw_rnr_nak_retry_err_total",
        "ibmon_port_hw_roce_slow_restart_total",
    ),
    "qp-broken": _rises(
        "ibmon_port_hw_req_transport_retries_exceeded_total", "ibmon_port_hw_req_rnr_retries_exceeded_total"
    ),
    "pcie-degraded": _Reading(
        f"{_NUMBER} % of the link",
        "100 * ibmon_pcie_link_speed_transfers_per_secondDEVICE * ibmon_pcie_link_width_lanesDEVICE "
        "/ (ibmon_pcie_link_speed_transfers_per_second_maxDEVICE * ibmon_pcie_link_width_lanes_maxDEVICE)",
        "100 %",
    ),
    "driver-fault": _Reading("called broken by its driver or the kernel log", limit="a device that answers"),
    "module-temperature": _Reading(f"{_NUMBER} degrees Celsius", "max(ibmon_module_temperature_celsiusDEVICE)"),
    "pkey-missing": _Reading("no full membership in P_Key 0", limit="one"),
    "chardev-missing": _Reading("no uverbs device", limit="one"),
    "repeat-offender": _Reading("drained again and again in WINDOW"),
    "counter-saturated": _Reading(f"{_NUMBER} stand", "count(ibmon_port_counter_saturatedAT == 1)", "none"),
    "device-stalled": _Reading(
        "silent for {{ . | first | value | humanizeDuration }}", "ibmon_sample_age_secondsDEVICE", "an answer"
    ),
    "monitor-blind": _Reading("state cannot be read", limit="an answer"),
}  # fmt: skip
"""What an alert shows of each rule; the number that the judgement itself saw stands in `ibmon status`."""

_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "AT": ("job", "instance", "device", "port"),
    "DEVICE": ("job", "instance", "device"),
    "NODE": ("job", "instance"),
}
_WHO: Final = (
    "{{ $labels.node }}: RULE"
    "{{ if $labels.device }} {{ $labels.device }}{{ end }}{{ if $labels.port }}/{{ $labels.port }}{{ end }}"
)


def group(config: Config) -> Group:
    """All that nodes could push; limits are told as this configuration has them."""
    says = f"What ibmon finds, with the node's name and the rail. It bridges {BRIDGED}: one failed scrape ends nothing."
    alerts = [_alert(config, rule) for rule in RULES if may_alert(config, rule)]
    notices = [rule.alert for rule in PUSHED]
    return Group("ibmon-findings", (Recording(FINDING, _NAMED, says),), (*alerts, *notices))


def may_alert(config: Config, rule: Rule) -> bool:
    """Whether the rule may alert on some port: its action, or that of an override, is more than to observe."""
    chosen = explain.chosen(config, rule)
    settings = [(chosen.enabled, chosen.action)]
    for override in config.override:
        if override.rule == rule.id:
            enabled = chosen.enabled if override.enabled is None else override.enabled
            settings.append((enabled, override.action or chosen.action))
    return any(enabled and action is not Mode.OBSERVE for enabled, action in settings)


def _alert(config: Config, rule: Rule) -> Alert:
    chosen = explain.chosen(config, rule)
    limit = _limit(rule, {one.key: one.text for one in explain.in_force(config, {}, rule)})
    return Alert(
        slug=rule.id,
        name=alert_name(rule.id),
        expr=f'{FINDING}{{rule="{rule.id}"}} == 1',
        hold="",
        severity=None,
        summary=f"{_WHO.replace('RULE', rule.id)}{_seen(rule, chosen)}, limit {limit}",
        description=f"{rule.title}. `ibmon explain {rule.id}` tells more.",
    )


def _seen(rule: Rule, chosen: Settings) -> str:
    """The template of what was read; nothing where it cannot be asked for any more."""
    reading = _READINGS[rule.id]
    window = chosen.window or SPEC_ERRORS / SPEC_BER / _FASTEST_SPEC
    shown = " " + reading.shown.replace("WINDOW", span(window))
    if not reading.query:
        return shown
    query = reading.query.replace("WINDOW", duration(window))
    arguments = []
    for place, labels in _PLACES.items():
        selector = "{" + ",".join(f"{label}=%q" for label in labels) + "}"
        for _ in range(query.count(place)):
            query = query.replace(place, selector, 1)
            arguments += [f"$labels.{label}" for label in labels]
    return f"{{{{ with printf `{query}` {' '.join(arguments)} | query }}}}{shown}{{{{ end }}}}"


def _limit(rule: Rule, texts: Mapping[str, str]) -> str:
    """What may be: the words of the reading, else the number that the severity was reached by."""
    if _READINGS[rule.id].limit:
        return _READINGS[rule.id].limit
    warning, critical = texts.get("warning", "none"), texts.get("critical", "none")
    if warning == "none" or critical in {"none", warning}:
        return critical if warning == "none" else warning
    return f'{{{{ if eq $labels.severity "critical" }}}}{critical}{{{{ else }}}}{warning}{{{{ end }}}}'


def duration(seconds: float) -> str:
    """A duration as Prometheus writes it: ``1d``, ``125m``, ``90s``."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"
