"""The table of configuration keys: how each is written, what it means, what it may hold.

Data only. What the keys are called and their defaults belong to `ibmon/config.py`; a test holds the two equal.
Reading, the commented example and docs/configuration.md are all made from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from ibmon.model import Mode, Role


class Kind(Enum):
    """How a value is written in the file."""

    NAME = "name"  # text without white space
    FILE = "file"  # an absolute path, or empty
    TEXTS = "list of texts"
    PATTERNS = "list of device patterns"
    MATCH = "port"  # of the inventory: also by GUID or PCI address
    PORTS = "port pattern"  # device/port only
    URL = "URL"
    ADDRESS = "URL without a query"
    ADDRESS_IF_ANY = "URL without a query, or empty"
    SERVER = "URL or socket"
    LISTEN = "address"
    CHOICE = "choice"
    CHOICES = "list of choices"
    FLAG = "true or false"
    DURATION = "duration"
    SHARE = "share"
    NUMBER = "number"
    WHOLE = "whole number"


class Key(NamedTuple):
    """One key. `example` is TOML as a person would write it; `above` bounds a number or duration from below.

    `least` is inclusive, `above` exclusive.
    """

    kind: Kind
    help: str
    example: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    above: float | None = None


REST_VERSIONS = ("v0.0.39", "v0.0.40", "v0.0.41", "v0.0.42")
"""Versions of slurmrestd's interface, oldest first: of Slurm 23.02, 23.11, 24.05, 24.11. None before changes nodes."""

MODES = tuple(m.value for m in Mode)
ROLES = tuple(r.value for r in Role)

RULES = (
    "port-down",
    "port-init",
    "rate-low",
    "device-missing",
    "all-devices-missing",
    "link-flap",
    "flap-storm",
    "long-outage",
    "symbol-errors",
    "gross-errors",
    "link-recovery",
    "receive-errors",
    "link-integrity",
    "transmit-discards",
    "roce-crc",
    "pause-storm",
    "gid-missing",
    "retransmits",
    "qp-broken",
    "pcie-degraded",
    "driver-fault",
    "module-temperature",
    "pkey-missing",
    "chardev-missing",
    "repeat-offender",
    "fabric-event",
    "counter-saturated",
    "device-stalled",
    "monitor-blind",
)
"""Every rule id of the file format; a version judges those that stand in its rule table."""

_STATE_LIKE = ("enabled", "alert_hold", "hold", "recover", "action")
_COUNT_LIKE = (*_STATE_LIKE, "window", "warning", "critical")
_ERRORS = (*_COUNT_LIKE, "warning_per_hour", "critical_per_hour")

COUNT_RULES = frozenset(
    {
        "link-flap",
        "flap-storm",
        "long-outage",
        "pause-storm",
        "qp-broken",
        "repeat-offender",
        "fabric-event",
    }
)
ERROR_RULES = frozenset(
    {
        "gross-errors",
        "link-integrity",
        "link-recovery",
        "receive-errors",
        "retransmits",
        "roce-crc",
        "symbol-errors",
        "transmit-discards",
    }
)


def _rule_keys(rule: str) -> tuple[str, ...]:
    if rule in ERROR_RULES:
        return _ERRORS
    if rule in COUNT_RULES:
        return _COUNT_LIKE
    if rule == "module-temperature":
        return (*_STATE_LIKE, "warning", "critical")
    return (*_STATE_LIKE, "polls") if rule == "monitor-blind" else _STATE_LIKE


RULE_KEYS: Mapping[str, tuple[str, ...]] = {rule: _rule_keys(rule) for rule in RULES}
"""The keys that a rule has. What a rule has not is refused, so that no setting is silently without effect."""

REMEMBERED: Mapping[str, int] = {"link-flap": 64, "flap-storm": 64, "long-outage": 64, "repeat-offender": 16}
"""How many of what a rule counts one by one are remembered: a limit above that could never be reached."""

LONGEST = 30 * 86400.0
"""Seconds for which anything that is counted is remembered."""

_LIMIT_HELP = "a number in the rule's unit; for error rules a bit error ratio"
_RULE: Mapping[str, Key] = {
    "enabled": Key(Kind.FLAG, "whether the rule is judged at all", "true"),
    "alert_hold": Key(Kind.DURATION, "how long the fault must last before it alerts", '"30s"'),
    "hold": Key(Kind.DURATION, "how long the fault must last before it may drain", '"60s"'),
    "recover": Key(Kind.DURATION, "how long the port must be good before the finding ends", '"10m"'),
    "window": Key(Kind.DURATION, "over how long occurrences are counted", '"24h"', above=0),
    "warning": Key(Kind.NUMBER, f"from here on a warning: {_LIMIT_HELP}", "2", least=0),
    "critical": Key(Kind.NUMBER, f"from here on critical: {_LIMIT_HELP}", "3", least=0),
    "warning_per_hour": Key(Kind.NUMBER, "instead of `warning`: errors an hour", "10", least=0),
    "critical_per_hour": Key(Kind.NUMBER, "instead of `critical`: errors an hour", "100", least=0),
    "polls": Key(Kind.WHOLE, "failed reads of the state in a row until ibmon calls itself blind", "6", least=1),
    "action": Key(Kind.CHOICE, "the most that the rule may cause", '"drain"', choices=MODES),
}

SECTIONS: Mapping[str, str] = {
    "node": "Who this node is.",
    "sampling": (
        "How often what is read. Each read of a port file can cost firmware commands on the card: shorter intervals "
        "see more and cost more."
    ),
    "devices": "Which devices ibmon looks at. A device that is left out here is never opened.",
    "port": (
        "The ports that this node should have; the first entry that matches a port wins. A name or a [...] class "
        "stands for every port it can mean, and each is expected; with * or ? only ports that were seen once are, "
        "unless `count` says how many there must be."
    ),
    "inventory": "Where the expectation of ports comes from, and how far it is trusted.",
    "rules": "What a site changes of a rule, one table a rule: [rules.port-down]. What is left out keeps its default.",
    "override": "A rule's settings for some ports only, by `match` or by `role`; the first entry that matches wins.",
    "action": "How far ibmon may go: observe counts what it would do, alert tells people, drain acts.",
    "action.limits": (
        "The most that all ibmon daemons together may take from a partition. They are counted at the scheduler, at "
        "the moment of a drain."
    ),
    "slurm": (
        'How Slurm is asked (scheduler = "slurm"): through scontrol, or with `rest_url` through slurmrestd of Slurm '
        "23.02 or later. docs/slurm.md says which rights each way needs."
    ),
    "kubernetes": 'How the node is marked in Kubernetes (scheduler = "kubernetes"): docs/kubernetes.md.',
    "command": 'The executable that speaks to any other scheduler (scheduler = "command"): docs/command-backend.md.',
    "controller": (
        'The fleet controller: where a node finds it (scheduler = "controller"), and how it is run '
        "(`ibmon controller`): docs/controller.md."
    ),
    "exporter": "Where metrics and the status page are served.",
    "state": "Where ibmon keeps what must outlive the process.",
    "alertmanager": (
        "Alertmanagers that are told what fires, one entry each. Name every member of a cluster: each gets all alerts, "
        "and they see to it among themselves that people hear of one once."
    ),
    "webhook": "Receivers of signed messages, one entry each.",
}

KEYS: Mapping[str, Mapping[str, Key]] = {
    "node": {
        "name": Key(
            Kind.NAME,
            "the node's name in metrics, messages and reports; empty: the variable NODE_NAME, else the short host name",
            '"gpu-17"',
        ),
    },
    "sampling": {
        "state_interval": Key(Kind.DURATION, "port states and the list of devices", '"5s"', above=0),
        "counter_interval": Key(Kind.DURATION, "traffic, link errors and hw_counters", '"10s"', above=0),
        "slow_interval": Key(Kind.DURATION, "the other counters, rate and physical state", '"60s"', above=0),
        "read_deadline": Key(Kind.DURATION, "a device that takes longer is called stalled", '"5s"', above=0),
    },
    "devices": {
        "include": Key(Kind.PATTERNS, "shell patterns on the device name", '["mlx5_*"]'),
        "exclude": Key(Kind.PATTERNS, "shell patterns; they win over `include`", '["mlx5_bond_*"]'),
    },
    "port": {
        "match": Key(
            Kind.MATCH,
            "`device/port` with shell patterns, or `guid:...` or `pci:...` with an optional `/port`",
            '"mlx5_[0-7]/1"',
        ),
        "role": Key(Kind.CHOICE, "only compute ports can make the node unfit", '"compute"', choices=ROLES),
        "rate": Key(Kind.NUMBER, "the rate to expect in Gb/s; left out: the best that was seen", "400", above=0),
        "rail": Key(Kind.WHOLE, "the rail's number; left out: by PCI address", "0", least=0),
        "count": Key(Kind.WHOLE, "how many ports the entry must find", "8", least=1),
    },
    "inventory": {
        "mode": Key(
            Kind.CHOICE,
            "learn: a port that was ACTIVE once is expected; declared: only what [[port]] names",
            '"declared"',
            choices=("learn", "declared"),
        ),
        "trust": Key(
            Kind.CHOICE,
            "accepted: a port that was only learned alerts and never drains; learned: it may drain",
            '"accepted"',
            choices=("accepted", "learned"),
        ),
    },
    "rules": _RULE,
    "override": {
        "rule": Key(Kind.CHOICE, "the rule that is changed", '"rate-low"', choices=RULES),
        "match": Key(Kind.PORTS, "the ports it is changed for, `device/port` with shell patterns", '"mlx5_8/1"'),
        "role": Key(Kind.CHOICE, "the role it is changed for", '"storage"', choices=ROLES),
        **_RULE,
    },
    "action": {
        "mode": Key(Kind.CHOICE, "observe, alert or drain", '"drain"', choices=MODES),
        "scheduler": Key(
            Kind.CHOICE,
            "who gives this node its jobs",
            '"slurm"',
            choices=("none", "slurm", "kubernetes", "command", "controller"),
        ),
        "stop_file": Key(
            Kind.FILE, "while this file exists ibmon writes nothing to the scheduler", '"/etc/ibmon/STOP"'
        ),
        "boot_grace": Key(Kind.DURATION, "no drain until the host has been up for so long", '"10m"'),
        "auto_release": Key(Kind.FLAG, "whether a node that ibmon drained is given back by itself", "true"),
        "override_ttl": Key(
            Kind.DURATION, "how long an operator's resume of a bad node is respected; 0s: not at all", '"24h"'
        ),
    },
    "action.limits": {
        "max_drained": Key(Kind.SHARE, "share of a partition that ibmon may hold drained", '"2%"'),
        "min_nodes": Key(
            Kind.WHOLE,
            "so many nodes are allowed even where the share is less; if written, in tiny ones too",
            "2",
            least=0,
        ),
        "new_per_minute": Key(Kind.NUMBER, "new drains a minute in a partition", "1", least=0),
        "max_unavailable": Key(Kind.SHARE, "no new drain while more than this share is down or drained", '"20%"'),
        "partitions": Key(
            Kind.TEXTS,
            "the partitions that are counted; left out: those of this node that do not hold every node",
            '["train"]',
        ),
    },
    "slurm": {
        "node_name": Key(Kind.NAME, "this node's name in Slurm; empty: asked of Slurm", '"gpu-17"'),
        "directory": Key(Kind.FILE, "where scontrol lies; empty: found by PATH", '"/opt/slurm/bin"'),
        "timeout": Key(Kind.DURATION, "how long one call may take", '"10s"', above=0),
        "rest_url": Key(
            Kind.SERVER,
            "slurmrestd's address (`http://`, `https://`, or `unix:` and its socket); empty: scontrol",
            '"https://slurm.example.org:6820"',
        ),
        "rest_token_file": Key(
            Kind.FILE, "file with the token (JWT) for slurmrestd, read anew for each call", '"/etc/ibmon/slurm.jwt"'
        ),
        "rest_user": Key(Kind.NAME, "the user whom the token names; Slurm before 24.05 wants it", '"ibmon"'),
        "rest_ca": Key(Kind.FILE, "whom to trust instead of the system's certificates", '"/etc/ibmon/ca.crt"'),
        "rest_version": Key(
            Kind.NAME, "slurmrestd's version to speak; empty: the newest that both sides know", '"v0.0.41"'
        ),
    },
    "kubernetes": {
        "node_name": Key(Kind.NAME, "this node's name in Kubernetes; empty: the variable NODE_NAME", '"gpu-17"'),
        "kubeconfig": Key(Kind.FILE, "credentials; empty: the service account of the pod", '"/etc/ibmon/kubeconfig"'),
        "context": Key(Kind.NAME, "which context of the kubeconfig; empty: the current one", '"training"'),
        "taint_key": Key(Kind.NAME, "the key of the taint that keeps new pods away", '"ibmon.dev/fabric"'),
        "cordon": Key(Kind.FLAG, "whether a drain makes the node unschedulable too", "false"),
        "condition": Key(Kind.FLAG, "whether the node gets the condition RdmaFabricUnhealthy", "true"),
        "events": Key(Kind.FLAG, "whether events are written about the node", "true"),
        "pool_label": Key(
            Kind.NAME,
            "the label whose value is a node's pool, for the limits; empty: all nodes are one pool",
            '"node.kubernetes.io/instance-type"',
        ),
        "timeout": Key(Kind.DURATION, "how long one call may take", '"10s"', above=0),
    },
    "command": {
        "path": Key(Kind.FILE, "the executable, by its absolute path", '"/etc/ibmon/pbs"'),
        "timeout": Key(Kind.DURATION, "how long one call may take", '"30s"', above=0),
    },
    "controller": {
        "url": Key(Kind.ADDRESS_IF_ANY, "on a node: the controller's address", '"https://ibmon.example.org:19316"'),
        "key_file": Key(Kind.FILE, "on a node: the file with this node's own key", '"/etc/ibmon/node.key"'),
        "ca": Key(Kind.FILE, "on a node: whom to trust instead of the system's certificates", '"/etc/ibmon/ca.crt"'),
        "listen": Key(Kind.LISTEN, "address and port of the controller", '"10.0.0.5:19316"'),
        "master_key_file": Key(
            Kind.FILE, "file with the key that all nodes' keys are made of", '"/etc/ibmon/master.key"'
        ),
        "tokens_file": Key(Kind.FILE, "file of `name role token` lines: who may look and act", '"/etc/ibmon/tokens"'),
        "tls_cert": Key(Kind.FILE, "certificate (PEM) for HTTPS", '"/etc/ibmon/tls.crt"'),
        "tls_key": Key(Kind.FILE, "its key", '"/etc/ibmon/tls.key"'),
        "topology": Key(
            Kind.NAME,
            "which nodes hang on one leaf: `label:KEY` of Kubernetes, `file:/PATH`; empty: what the scheduler tells",
            '"label:topology.kubernetes.io/rack"',
        ),
        "fabric_hold": Key(Kind.DURATION, "how long drains wait while many nodes show one fault at once", '"15m"'),
        "quorum": Key(Kind.SHARE, "share of the nodes that must have reported before anything is drained", '"90%"'),
        "drain_on": Key(Kind.TEXTS, "names of Prometheus alerts that may drain a node", '["NodeFabricBroken"]'),
        "lease": Key(
            Kind.NAME, "the Lease by which several controllers elect one, `NAMESPACE/NAME`", '"ibmon/controller"'
        ),
        "ledger": Key(
            Kind.NAME,
            "where stops, waves and windows are kept: `configmap:NAMESPACE/NAME`; empty: the state directory",
            '"configmap:ibmon/controller"',
        ),
    },
    "exporter": {
        "listen": Key(Kind.LISTEN, "address and port; no address: all of them", '"127.0.0.1:19315"'),
        "tls_cert": Key(Kind.FILE, "certificate (PEM) for HTTPS", '"/etc/ibmon/tls.crt"'),
        "tls_key": Key(Kind.FILE, "its key", '"/etc/ibmon/tls.key"'),
        "client_ca": Key(Kind.FILE, "clients must show a certificate of this authority", '"/etc/ibmon/ca.crt"'),
        "basic_auth_file": Key(Kind.FILE, "file of user:password lines", '"/etc/ibmon/users"'),
        "compat": Key(
            Kind.CHOICES,
            "other exporters whose metric names are served too",
            '["node_exporter"]',
            choices=("node_exporter",),
        ),
    },
    "state": {
        "directory": Key(Kind.FILE, "outlives a boot", '"/var/lib/ibmon"'),
        "runtime_directory": Key(Kind.FILE, "outlives a restart, not a boot", '"/run/ibmon"'),
    },
    "alertmanager": {
        "url": Key(Kind.ADDRESS, "its address, with its route prefix if it has one", '"http://alertmanager:9093"'),
        "resend_interval": Key(
            Kind.DURATION, "how often it is told what fires; an alert expires after four of them", '"1m"', least=1
        ),
        "basic_auth_file": Key(Kind.FILE, "file with one user:password line", '"/etc/ibmon/alertmanager.user"'),
        "bearer_token_file": Key(Kind.FILE, "file with a token, instead", '"/etc/ibmon/alertmanager.token"'),
        "ca": Key(Kind.FILE, "whom to trust instead of the system's certificates", '"/etc/ibmon/ca.crt"'),
        "client_cert": Key(Kind.FILE, "certificate (PEM) to show", '"/etc/ibmon/client.crt"'),
        "client_key": Key(Kind.FILE, "its key; left out: in the same file", '"/etc/ibmon/client.key"'),
        "runbook_url": Key(
            Kind.URL,
            "where the files of docs/runbook are served: each alert links to its own",
            '"https://wiki.example.org/ibmon/runbook"',
        ),
    },
    "webhook": {
        "url": Key(Kind.URL, "where messages are posted to", '"https://hooks.example.org/ibmon"'),
        "secret_file": Key(Kind.FILE, "file with the key that messages are signed with", '"/etc/ibmon/webhook.key"'),
        "events": Key(
            Kind.CHOICES,
            "which messages it gets",
            '["fitness"]',
            choices=("fitness", "finding"),
        ),
    },
}
"""Every key by section; `rules` stands for each [rules.NAME]."""

TABLE_ARRAYS = frozenset({"port", "override", "alertmanager", "webhook"})
NOT_IN_FILES = frozenset({"min_nodes_set"})
"""Fields of `ibmon/config.py` that follow from a file and cannot be written in it."""
