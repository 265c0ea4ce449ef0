"""Alerts about the controller, the fleet's one mind: rows of the fleet's table."""

from __future__ import annotations

from typing import Final

from ibmon.promrules.table import FleetRule

CONTROLLER: Final = (
    FleetRule(
        slug="controller-leader", name="IbmonControllerLeader",
        expr="sum by (job) (ibmon_controller_leader) != 1",
        hold="2m", severity="critical",
        summary="{{ $value }} controllers lead, limit 1",
        title="Not exactly one controller leads",
        means="Without a leader nothing is drained and nothing is given back; with two, one of them is about to give "
        "up.",
        causes="all replicas have lost the lease; the API server cannot be reached",
        todo="look at the log of the replicas and at the lease",
        clears="exactly one leads",
        source="a lease passes on within seconds",
    ),
    FleetRule(
        slug="controller-stop", name="IbmonControllerStop",
        expr="max by (job) (ibmon_controller_stop) == 1",
        hold="1h", severity="warning",
        summary="all writes to the scheduler have been stopped by hand for {{ $value }} h and more, limit 1 h",
        title="Somebody has stopped all draining and giving back",
        means="The stop of the controller is in force. No node is drained or given back until it is started again.",
        causes="an incident, and nobody has started it again",
        todo="ask who stopped it; start it again",
        clears="it is started again",
        source="one hour: an incident that lasts longer should be known",
    ),
    FleetRule(
        slug="controller-quorum", name="IbmonControllerQuorum",
        expr="ibmon_controller_quorum_ratio < 0.9 and on (job, instance) ibmon_controller_leader == 1",
        hold="10m", severity="warning",
        summary="{{ $value | humanizePercentage }} of the nodes report to the controller, limit 90 %",
        title="Too few nodes report to the controller",
        means="Of the nodes seen within a day so few report that the controller takes no new drains: it cannot tell a "
        "broken fleet from a broken network.",
        causes="the network between nodes and controller; an expired certificate; keys that do not fit after a change",
        todo="the dashboard *ibmon itself* shows refused reports by reason; `journalctl -u ibmon` on a silent node",
        clears="90 % of the nodes report",
        source="0.9: the default of `quorum`",
    ),
    FleetRule(
        slug="controller-scheduler", name="IbmonControllerScheduler",
        expr="ibmon_controller_scheduler_age_seconds > 300 and on (job, instance) ibmon_controller_leader == 1",
        hold="2m", severity="critical",
        summary="the controller last read the scheduler {{ $value | humanizeDuration }} ago, limit 5 min",
        title="The controller cannot read the scheduler",
        means="Drains and limits are counted at the scheduler. Without it the controller decides nothing.",
        causes="slurmctld or the API server is down; a token has expired; munge",
        todo="try the same call by hand from the controller's host; its log names the error",
        clears="the scheduler answers",
        source="five minutes: ten times the interval",
    ),
    FleetRule(
        slug="controller-refused", name="IbmonControllerReportsRefused",
        expr='sum by (job, outcome) (increase(ibmon_controller_reports_total{outcome=~"refused_.*"}[15m])) > 0',
        hold="15m", severity="warning",
        summary='{{ $value | printf "%.0f" }} reports in 15 min were refused ({{ $labels.outcome }}), limit 0',
        title="The controller refuses reports of nodes",
        means="Some node's reports do not count: for the controller that node is silent.",
        causes="a key that does not fit (refused_signature); a clock that is off (refused_skew); a node that uses "
        "another's name (refused_name)",
        todo="the log of the controller names the node; give it its key again, or look at its clock",
        clears="15 min without a refused report",
        source="no refused report is normal",
    ),
    FleetRule(
        slug="controller-orphans", name="IbmonControllerDrainsOrphaned",
        expr='ibmon_controller_drains{state="orphaned"} > 0 and on (job, instance) ibmon_controller_leader == 1',
        hold="5m", severity="warning",
        summary="{{ $value }} drains in ibmon's words that no node and no ledger has a record of, limit 0",
        title="Nodes are drained in ibmon's words, and nobody has a record of it",
        means="The scheduler shows drains with ibmon's prefix that their nodes, which report, do not present. The "
        "controller does not touch them: the nodes stay out of service until a person decides.",
        causes="a node's state directory or the controller's ledger was lost; a scheduler that was stuck has made a "
        "drain long after it was asked for",
        todo="`ibmon controller status` names them; look at the nodes, and give them back: `ibmon release --node NAME`",
        clears="the drains are taken away",
        source="no orphan is normal",
    ),
    FleetRule(
        slug="fabric-event", name="IbmonFabricEvent",
        expr="max by (group, rail, rule) (ibmon_controller_fabric_event) > 0",
        hold="", severity="critical",
        summary="{{ $labels.rule }} on rail {{ $labels.rail }} of {{ $labels.group }}: {{ $value }} nodes at once, "
        "limit 2",
        title="One event in the fabric has hit several nodes at once",
        means="The same rule began on several nodes of a group within a minute. Their drains are withheld for a while, "
        "as the fabric is to blame and not the nodes.",
        causes="a leaf switch; a subnet manager; a power feed; a pulled cable bundle",
        todo="look at the switches of the group; the dashboard *Incident* shows the nodes and since when",
        clears="the event is over",
        source="three or more nodes: `docs/architecture.md`",
    ),
)  # fmt: skip
