"""The typed configuration: every key of the file with its default, as plain values (durations in seconds).

Pure: reading files, naming errors and telling where a value came from is `ibmon/configfile.py`.
The keys and their defaults are a contract with other tools; docs/configuration.md is made from this page.
"""

from __future__ import annotations

import msgspec

from ibmon.model import Mode, Role


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[node]. An empty name means NODE_NAME, which a pod is given, else the short host name."""

    name: str = ""


class SamplingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[sampling]: how often what is read, and how long a device may take (seconds)."""

    state_interval: float = 5.0
    counter_interval: float = 10.0
    slow_interval: float = 60.0
    read_deadline: float = 5.0


class DevicesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[devices]: shell patterns on the device name; an excluded device is never read."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()


class PortConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[[port]]: one entry of the declared inventory; the first match wins.

    `match` is ``device/port`` with shell patterns, ``guid:...`` or ``pci:...``; `rate` in Gb/s, None: best seen.
    """

    match: str
    role: Role = Role.COMPUTE
    rate: float | None = None
    rail: int | None = None
    count: int | None = None


class InventoryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[inventory]. mode `learn` or `declared`; trust `accepted` or `learned`."""

    mode: str = "learn"
    trust: str = "accepted"


class RuleConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[rules.NAME]: what a site changes of a rule's defaults; None leaves the default."""

    enabled: bool | None = None
    alert_hold: float | None = None
    hold: float | None = None
    recover: float | None = None
    window: float | None = None
    warning: float | None = None
    critical: float | None = None
    warning_per_hour: float | None = None
    critical_per_hour: float | None = None
    polls: int | None = None
    action: Mode | None = None


class OverrideConfig(RuleConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[[override]]: a rule's settings for a role or for matching ports; the first match wins."""

    rule: str
    match: str | None = None
    role: Role | None = None


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[action.limits]. Shares are 0..1; partitions None: those that contain the node, except those that hold all."""

    max_drained: float = 0.02
    min_nodes: int = 2
    new_per_minute: float = 1.0
    max_unavailable: float = 0.20
    partitions: tuple[str, ...] | None = None
    min_nodes_set: bool = False  # whether the site wrote min_nodes: then it holds for pools under four nodes too


class ActionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[action]: how far ibmon may go and through which scheduler."""

    mode: Mode = Mode.OBSERVE
    scheduler: str = "none"
    stop_file: str = "/etc/ibmon/STOP"
    boot_grace: float = 600.0
    auto_release: bool = True
    override_ttl: float = 86400.0
    limits: LimitsConfig = LimitsConfig()


class SlurmConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[slurm]: how Slurm is asked: by its commands, or with `rest_url` by slurmrestd. The timeout is in seconds.

    An empty `directory` means PATH, an empty `rest_version` the newest that both sides know; else an empty
    name means: not used.
    """

    node_name: str = ""
    directory: str = ""
    timeout: float = 10.0
    rest_url: str = ""
    rest_token_file: str = ""
    rest_user: str = ""
    rest_ca: str = ""
    rest_version: str = ""


class CommandConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[command]: the executable for any other scheduler (docs/command-backend.md); the timeout is in seconds."""

    path: str = ""
    timeout: float = 30.0


class KubernetesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[kubernetes]: as whom and how nodes are marked. Empty names: the pod's own; the timeout is in seconds."""

    node_name: str = ""
    kubeconfig: str = ""
    context: str = ""
    taint_key: str = "ibmon.dev/fabric"
    cordon: bool = False
    condition: bool = True
    events: bool = True
    pool_label: str = ""
    timeout: float = 10.0


class ControllerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[controller]: the first three are the node's, the others the fleet controller's. Empty file names: not used.

    `topology` is empty (what the scheduler tells), ``label:KEY`` or ``file:/PATH``; `ledger` is empty (the state
    directory) or ``configmap:NAMESPACE/NAME``; `lease` is ``NAMESPACE/NAME``. `fabric_hold` is in seconds.
    """

    url: str = ""
    key_file: str = ""
    ca: str = ""
    listen: str = ":19316"
    master_key_file: str = ""
    tokens_file: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    topology: str = ""
    fabric_hold: float = 900.0
    quorum: float = 0.90
    drain_on: tuple[str, ...] = ()
    lease: str = ""
    ledger: str = ""


class ExporterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[exporter]: where metrics and the page are served. Empty file names mean: not used."""

    listen: str = ":19315"
    tls_cert: str = ""
    tls_key: str = ""
    client_ca: str = ""
    basic_auth_file: str = ""
    compat: tuple[str, ...] = ()


class StateConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[state]: directories that outlive the process and, the second, only the boot."""

    directory: str = "/var/lib/ibmon"
    runtime_directory: str = "/run/ibmon"


class AlertmanagerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[[alertmanager]]: who is told what fires, again each `resend_interval` (seconds). Empty file names: not used."""

    url: str
    resend_interval: float = 60.0
    basic_auth_file: str = ""
    bearer_token_file: str = ""
    ca: str = ""
    client_cert: str = ""
    client_key: str = ""
    runbook_url: str | None = None


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[[webhook]]: a receiver of signed messages."""

    url: str
    secret_file: str = ""
    events: tuple[str, ...] = ("fitness", "finding")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration; `Config()` is the default, which suits an 8-HCA training node in observe mode."""

    node: NodeConfig = NodeConfig()
    sampling: SamplingConfig = SamplingConfig()
    devices: DevicesConfig = DevicesConfig()
    port: tuple[PortConfig, ...] = ()
    inventory: InventoryConfig = InventoryConfig()
    rules: dict[str, RuleConfig] = msgspec.field(default_factory=dict)
    override: tuple[OverrideConfig, ...] = ()
    action: ActionConfig = ActionConfig()
    slurm: SlurmConfig = SlurmConfig()
    kubernetes: KubernetesConfig = KubernetesConfig()
    command: CommandConfig = CommandConfig()
    controller: ControllerConfig = ControllerConfig()
    exporter: ExporterConfig = ExporterConfig()
    state: StateConfig = StateConfig()
    alertmanager: tuple[AlertmanagerConfig, ...] = ()
    webhook: tuple[WebhookConfig, ...] = ()
