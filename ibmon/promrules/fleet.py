"""What no node can say of itself: alerts about nodes that are silent, about the whole fleet, and about the controller.

A table. These alerts hold whether or not nodes push their own findings, but for those of `PUSHED`.
"""

from __future__ import annotations

from typing import Final

from ibmon.notices import WORDS
from ibmon.promrules.controller import CONTROLLER
from ibmon.promrules.table import FleetRule, Group, Recording, named

RECORDINGS: Final = (
    Recording(
        "fitness:ibmon_node_fitness:sum",
        "sum by (fitness) (ibmon_node_fitness)",
        "Nodes by their verdict, for long histories.",
    ),
    Recording(
        "ibmon_node_fitness:unfit:ratio",
        'sum(ibmon_node_fitness{fitness="unfit"}) / count(ibmon_up)',
        "Share of the fleet that is unfit.",
    ),
    Recording(
        "ibmon_node_fitness:unknown:ratio",
        'sum(ibmon_node_fitness{fitness="unknown"}) / count(ibmon_up)',
        "Share of the fleet that nobody can see.",
    ),
    Recording(
        "rail:ibmon_port_state:lost",
        """\
count by (rail) (
  (max_over_time(ibmon_port_state[1h]) >= 4 and ibmon_port_state < 4)
  * on (job, instance, device, port) group_left (rail)
  ibmon_port_info{role="compute", rail!=""}
)""",
        "Compute ports of a rail that were ACTIVE within the last hour and are not now.",
    ),
    Recording(
        "rail:ibmon_port_state:count",
        """\
count by (rail) (
  ibmon_port_state
  * on (job, instance, device, port) group_left (rail)
  ibmon_port_info{role="compute", rail!=""}
)""",
        "Compute ports of a rail.",
    ),
    Recording(
        "ibmon_port_symbol_error:ratio125m",
        """\
increase(ibmon_port_symbol_error_total[125m])
/ on (job, instance, device, port)
(ibmon_port_expected_rate_bytes_per_second * 8 * 7500)""",
        "Symbol errors for each bit that the link could carry in 125 min: the bit error ratio of the rules.",
    ),
)
"""What alerts and long histories need; dashboards do without."""

FLEET: Final = (
    FleetRule(
        slug="daemon-down", name="IbmonDaemonDown",
        expr="up == 0 and on (job) group by (job) (last_over_time(ibmon_build_info[1d]))",
        hold="5m", severity="warning",
        summary="{{ $labels.instance }}: ibmon has not answered a scrape for 5 min, limit one missed scrape",
        title="The daemon of a node does not answer",
        means="Prometheus cannot scrape ibmon on this node. Nobody watches its ports: what it said last is old, and "
        "silence is not health.",
        causes="the daemon has ended; the node is down; a firewall or certificate keeps Prometheus out",
        todo="`systemctl status ibmon` and `journalctl -u ibmon` on the node, or the pod's log, tell why it ended; if "
        "the node itself is gone, this is the scheduler's and not ibmon's matter",
        clears="a scrape that works",
        source="5 min: what a node takes to reboot is longer, what a daemon takes to restart is shorter",
    ),
    FleetRule(
        slug="daemon-gone", name="IbmonDaemonGone",
        expr="group by (node) (last_over_time(ibmon_node_info[6h]))\n"
        "unless on (node) group by (node) (last_over_time(ibmon_node_info[10m]))\n"
        "unless on (node) group by (node) (\n"
        "  last_over_time(ibmon_node_info[6h]) and on (job, instance) up\n"
        ")",
        hold="15m", severity="warning",
        summary="{{ $labels.node }}: no target of Prometheus has told of this node for 25 min, limit 10 min",
        title="A node that was watched is no target any more",
        means="ibmon on this node was scraped within the last six hours, and now there is nothing to scrape: service "
        "discovery has dropped the target, so that not even `up` tells of it.",
        causes="the pod was evicted or its DaemonSet no longer selects the node; the node was taken out of the list of "
        "targets; it was renamed or taken out of service",
        todo="`kubectl -n ibmon get pods -o wide` or the list of targets tells whether ibmon should run there; if the "
        "node was taken out of service, nothing is to be done: the alert ends by itself",
        clears="the node is scraped again, or six hours have passed",
        source="six hours: long enough for somebody to look, short enough for nodes that were taken away",
    ),
    FleetRule(
        slug="nothing-scraped", name="IbmonNothingScraped",
        expr="absent(ibmon_up)",
        hold="10m", severity="critical",
        summary="no node of the fleet tells of its ports, limit one",
        title="Nothing of ibmon is scraped at all",
        means="Prometheus has not one series of ibmon. No alert of a node can come from here, whatever happens to its "
        "ports.",
        causes="the scrape configuration was changed; a certificate for all of them has expired; the network between",
        todo="the page of targets in Prometheus shows each scrape's error; until it works, `ibmon status` on a node "
        "tells of that node",
        clears="one node is scraped",
        source="10 min: longer than a restart of Prometheus",
    ),
    FleetRule(
        slug="scrape-stale", name="IbmonSampleStale",
        expr=named(
            "max by (job, instance, device) (ibmon_sample_age_seconds) > 60\n"
            "unless on (job, instance, device) ibmon_device_stalled == 1"
        ),
        hold="2m", severity="warning",
        summary="{{ $labels.node }}: {{ $labels.device }} was read {{ $value | humanizeDuration }} ago, limit 60 s",
        title="What is scraped of a device is old",
        means="The daemon answers, and its values of this device are old: it has not read the device's state for a "
        "minute, although no read hangs.",
        causes="the node is so busy that the daemon does not run; the device is left alone after a firmware timeout",
        todo="`journalctl -u ibmon` tells of back-off; look at the load of the node (`uptime`, cgroup limits of the "
        "service)",
        clears="a complete read of the device's state",
        source="60 s: twelve times the default interval, and longer than one back-off",
    ),
    FleetRule(
        slug="loop-stalled", name="IbmonLoopStalled",
        expr=named("increase(ibmon_ticks_total[5m]) == 0"),
        hold="2m", severity="warning",
        summary="{{ $labels.node }}: the daemon's loop made {{ $value }} turns in 5 min, limit 1",
        title="The daemon answers scrapes but no longer judges",
        means="The loop that reads, judges and acts has not turned for five minutes. The last picture is served on and "
        "on.",
        causes="a disk that hangs under the state directory; a fault of ibmon",
        todo="the service's watchdog restarts it within a minute: if it runs without systemd, restart it; keep the "
        "output of `py-spy dump` or `journalctl -u ibmon` for a report",
        clears="the loop turns",
        source="a turn takes milliseconds and comes at least every few seconds",
    ),
    FleetRule(
        slug="fleet-unfit", name="IbmonFleetUnfit",
        expr='ibmon_node_fitness:unfit:ratio > 0.05 and on () fitness:ibmon_node_fitness:sum{fitness="unfit"} >= 3',
        hold="5m", severity="critical",
        summary="{{ $value | humanizePercentage }} of the fleet is unfit, limit 5 %",
        title="A large share of the fleet is unfit at the same time",
        means="So many nodes do not go bad by themselves. One cause in the fabric, or in what ibmon looks at, is more "
        "likely than many broken cards.",
        causes="a switch, a subnet manager or a power feed failed; a driver or firmware was rolled out; a change of "
        "ibmon's configuration",
        todo="the dashboard *Incident* shows which rail and since when; if the nodes are well and the verdict is "
        "wrong, the stop of the controller, or the stop file on the nodes, ends all writes to the scheduler",
        clears="less than 5 % of the nodes, or fewer than three, are unfit",
        source="more than twice the 2 % that ibmon itself would drain of a pool",
    ),
    FleetRule(
        slug="fleet-unknown", name="IbmonFleetUnknown",
        expr='ibmon_node_fitness:unknown:ratio > 0.05 and on () fitness:ibmon_node_fitness:sum{fitness="unknown"} >= 3',
        hold="10m", severity="warning",
        summary="of {{ $value | humanizePercentage }} of the fleet nobody knows whether it is fit, limit 5 %",
        title="A large share of the fleet cannot be seen",
        means="The daemons answer, and cannot tell whether their nodes are fit: reads fail or hang, or all ports wait "
        "for a subnet manager.",
        causes="no subnet manager; a driver that refuses reads after an update; missing permissions",
        todo="`ibmon status` on one of the nodes names what cannot be read",
        clears="less than 5 % of the nodes, or fewer than three, are unknown",
        source="as for unfit nodes, and longer: after a reboot of many nodes this is normal for minutes",
    ),
    FleetRule(
        slug="rail-lost", name="IbmonRailLost",
        expr="rail:ibmon_port_state:lost >= 3 and rail:ibmon_port_state:lost > 0.01 * rail:ibmon_port_state:count",
        hold="1m", severity="critical",
        summary="rail {{ $labels.rail }}: {{ $value }} nodes have lost their port within the hour, limit 3",
        title="Many nodes have lost the port of one rail",
        means="Ports of one rail go through the same leaf switches. When several of them fail together, the leaf, its "
        "power or its cables are to blame and not the nodes.",
        causes="a leaf switch is down or was rebooted; its subnet manager or a firmware update; a cable bundle was "
        "pulled",
        todo="look at the leaf of this rail first; the dashboard *Incident* lists the nodes; draining them one by one "
        "helps nobody",
        clears="fewer than three ports, or 1 % of the rail, are still gone an hour after they were lost",
        source="three nodes: what the controller calls a fabric event; 1 % keeps large fleets quiet",
    ),
    FleetRule(
        slug="drain-old", name="IbmonDrainOld",
        expr=named("time() - ibmon_drain_since_timestamp_seconds > 86400 and ibmon_drain_active == 1"),
        hold="10m", severity="warning",
        summary="{{ $labels.node }}: drained by ibmon for {{ $value | humanizeDuration }}, limit 24 h",
        title="ibmon has kept a node out of service for a day",
        means="The fault that drained the node still stands, or waits for a person's word. Nobody seems to work on it.",
        causes="a repair that nobody has been asked for; a finding that only `ibmon clear` ends",
        todo="`ibmon status` on the node shows the fault; repair it, then `ibmon clear`; `ibmon release` gives the "
        "node back as it is",
        clears="the node is given back",
        source="24 h: a working day and a night",
    ),
    FleetRule(
        slug="drain-blocked", name="IbmonDrainBlocked",
        expr=named('ibmon_drain_blocked{code!~"mode|stop|maintenance|boot_grace|override|fabric_event"} == 1'),
        hold="30m", severity="warning",
        summary="{{ $labels.node }}: a drain that is due is blocked by {{ $labels.code }} for 30 min, limit 30 min",
        title="An unfit node still gets jobs, because its drain is not made",
        means="ibmon would drain the node and does not: too many nodes are out already, or the scheduler cannot be "
        "asked. New jobs still land on it.",
        causes="the limits of [action.limits] are reached; the scheduler is down or refuses; the port is only learned "
        "and nobody has accepted it",
        todo="the label `code` names the gate, `ibmon status` explains it; repair drained nodes, or drain this one by "
        "hand",
        clears="the drain is made or no longer wanted",
        source="30 min: the rate limit alone lets thirty drains through in that time",
    ),
    FleetRule(
        slug="drain-orphaned", name="IbmonDrainOrphaned",
        expr=named("ibmon_drain_orphaned == 1"),
        hold="5m", severity="warning",
        summary="{{ $labels.node }}: {{ $value }} drain in ibmon's words without a record of it, limit 0",
        title="A node is drained in ibmon's words, and nobody knows of it",
        means="The scheduler shows a drain with ibmon's prefix that this daemon has no record of. It will not touch "
        "it: the node stays out of service until a person decides.",
        causes="the state directory was lost or replaced; the node was installed anew while drained",
        todo="look at the node; if it is well, `ibmon release` gives it back",
        clears="the drain is taken away",
        source="no orphan is normal",
    ),
    FleetRule(
        slug="drain-overridden", name="IbmonDrainOverridden",
        expr=named("ibmon_drain_overridden == 1"),
        hold="1h", severity="warning",
        summary="{{ $labels.node }}: resumed by hand while still bad, for {{ $value }} h and more, limit 1 h",
        title="A node that somebody resumed is still bad after an hour",
        means="An operator gave the node back although its fault stands, and ibmon respects that. Jobs run on a node "
        "that is not fit.",
        causes="a test that was forgotten; a fault that came back",
        todo="drain it again by hand, or repair it; ibmon drains by itself when override_ttl is over",
        clears="the fault is gone, or the override has ended",
        source="one hour is enough for a test job",
    ),
    FleetRule(
        slug="actions-disabled", name="IbmonActionsDisabled",
        expr=named("ibmon_actions_enabled == 0"),
        hold="5m", severity="warning",
        summary="{{ $labels.node }}: this daemon only exports (actions {{ $value }}), limit 1",
        title="A daemon acts for nothing: it is a second one, or not allowed to",
        means="This daemon exports and drains nothing, because another one holds the runtime or the state directory, "
        "its own cannot be locked, or the scheduler or the controller refuses it.",
        causes="ibmon runs as a service and in a container as well; a state directory on a shared file system; a key "
        "or rights that are missing",
        todo="its log says which; end one of the two daemons, give each node a state directory of its own, or the "
        "daemon its rights",
        clears="the daemon holds both directories and may act",
        source="one daemon a node",
    ),
    FleetRule(
        slug="config-invalid", name="IbmonConfigInvalid",
        expr=named("ibmon_config_valid == 0"),
        hold="5m", severity="warning",
        summary="{{ $labels.node }}: the configuration file is invalid (valid {{ $value }}), limit 1",
        title="The configuration file is invalid and an older one stays in force",
        means="A reload was refused. After a restart the daemon would not start with this file.",
        causes="a mistake in the file; a file of a newer version",
        todo="`ibmon config check` names file, line and the nearest right spelling; then reload",
        clears="a reload that works",
        source="no invalid file is normal",
    ),
    FleetRule(
        slug="state-unsaved", name="IbmonStateUnsaved",
        expr=named("increase(ibmon_state_save_errors_total[10m]) > 0"),
        hold="5m", severity="warning",
        summary='{{ $labels.node }}: {{ $value | printf "%.0f" }} saves of the state failed in 10 min, limit 0',
        title="The state of a node cannot be saved",
        means="ibmon acts from memory and gives nothing back that was not saved. A restart now would forget holds and "
        "records.",
        causes="the disk is full or read-only; the state directory is gone",
        todo="`df` and `dmesg` on the node; `journalctl -u ibmon` names the error",
        clears="10 min without a failed save",
        source="no failed save is normal",
    ),
    FleetRule(
        slug="deliveries-failing", name="IbmonDeliveriesFailing",
        expr="increase(ibmon_delivery_failures_total[15m])\n"
        "/ increase(ibmon_delivery_attempts_total[15m]) > 0.99",
        hold="5m", severity="warning",
        summary="{{ $labels.instance }}: {{ $value | humanizePercentage }} of what was sent to {{ $labels.target }} "
        "failed, limit 99 %",
        title="Alerts or webhooks of a node do not arrive",
        means="Every attempt of the last quarter of an hour to tell this target failed. What it should hear waits; "
        "alerts that were told before expire.",
        causes="the target is down; its address or credentials are wrong; a firewall",
        todo="`ibmon test-alert` on the node shows what comes back",
        clears="one message arrives",
        source="one in a hundred that arrives proves the way",
    ),
    *CONTROLLER,
)  # fmt: skip
BY_SLUG: Final = {rule.slug: rule for rule in FLEET}


PUSHED: Final = tuple(rule for rule in FLEET if rule.slug in WORDS)
"""What nodes tell Alertmanager themselves, beside their findings, where they are told to."""


def group() -> Group:
    """Recording rules, and alerts that nobody else tells."""
    return Group("ibmon-fleet", RECORDINGS, tuple(rule.alert for rule in FLEET if rule not in PUSHED))
