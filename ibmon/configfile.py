"""Loading the configuration: which files, laid over one another how, checked, and where each value came from.

The only place that opens configuration files for the daemon and the commands. What the keys are is
`ibmon/config.py` and `ibmon/configkeys.py`.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from ibmon.config import Config, RuleConfig, SlurmConfig
from ibmon.configbuild import Builder, by_place
from ibmon.configkeys import KEYS, REST_VERSIONS, RULE_KEYS
from ibmon.configtree import ConfigError, Table, merge, parse, read
from ibmon.configvalues import duration_text
from ibmon.health.rules import RULE_BY_ID
from ibmon.health.settings import lay, of_rule
from ibmon.model import Mode

__all__ = ["CONF_D", "DEFAULT_FILE", "RULE_KEYS", "ConfigError", "Loaded", "config_hash", "load", "loads"]

DEFAULT_FILE = Path("/etc/ibmon/ibmon.toml")
CONF_D = Path("/etc/ibmon/conf.d")
_OBJECT = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_CONTROLLER_SHAPES: Mapping[str, re.Pattern[str]] = {
    "topology": re.compile(r"label:[A-Za-z0-9./_-]+|file:/.+"),
    "lease": re.compile(_OBJECT),
    "ledger": re.compile(rf"configmap:{_OBJECT}"),
}
_NODE_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")  # as `ibmon.report` has it on the wire
_TAINT_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)

_SECRETS = (  # how keys end that name a file with one
    "tls_key", "client_key", "basic_auth_file", "token_file", "secret_file", "key_file", "tokens_file", "kubeconfig",
)  # fmt: skip
_ANYBODY_RUNS = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


class Loaded(NamedTuple):
    """A valid configuration.

    Attributes:
        config: the values.
        origins: by dotted key (``action.mode``, ``port[0].match``) either ``default`` or ``FILE:LINE``.
        warnings: lines for people; nothing that stops a start.
        hash: the first 12 hex digits of the SHA-256 of the effective configuration; equal for equal behaviour.
        files: what was read, in order.
    """

    config: Config
    origins: Mapping[str, str]
    warnings: tuple[str, ...]
    hash: str
    files: tuple[Path, ...]


def load(path: Path | None = None, conf_d: Path | None = None, *, host: bool = True) -> Loaded:
    """Read, merge and check the configuration.

    With `path` None the default file is read where it exists, and with it the files of `conf_d` (or of its default
    place) in byte order of their names. A `path` that is given must exist, and stands alone unless `conf_d` is given
    too. With `host` false nothing of this host is looked at beyond the files themselves (for replays).

    Raises:
        ConfigError: a file cannot be read or its content cannot be used; it lists all problems.
    """
    files: list[Path] = []
    root = Table({}, "default")
    problems: list[str] = []
    for file, required in _candidates(path, conf_d):
        try:
            root = merge(root, read(file))
        except FileNotFoundError:
            if required:
                problems.append(f"{file}: no such file; `ibmon config example` prints one to start from")
            continue
        except ConfigError as error:
            problems.extend(error.problems)
            continue
        files.append(file)
    return _finish(root, tuple(files), problems, host=host)


def loads(text: str, name: str = "text", *, host: bool = False) -> Loaded:
    """The configuration that a text holds; as `load`."""
    return _finish(parse(text, name), (), [], host=host)


def _finish(root: Table, files: tuple[Path, ...], problems: list[str], *, host: bool) -> Loaded:
    builder = Builder()
    config = builder.build(root)
    problems = [*problems, *sorted(builder.problems, key=by_place)]
    if not problems:
        problems.extend(_contradictions(config))
    if problems:
        raise ConfigError(problems)
    warnings = [*_doubts(config), *(_host_doubts(config) if host else ())]
    return Loaded(config, builder.origins, tuple(warnings), config_hash(config), files)


def _candidates(path: Path | None, conf_d: Path | None) -> Iterator[tuple[Path, bool]]:
    if path is None:
        yield DEFAULT_FILE, False
        conf_d = conf_d or CONF_D
    else:
        yield path, True
    if conf_d is not None:
        try:
            found = sorted(conf_d.iterdir(), key=lambda p: p.name.encode())
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise ConfigError([f"{conf_d}: {error.strerror}"]) from error
        yield from ((p, True) for p in found if p.suffix == ".toml" and not p.name.startswith("."))


def config_hash(config: Config) -> str:
    """The short hash of a configuration's values; comments, order and written defaults do not change it."""
    return hashlib.sha256(msgspec.json.encode(config, order="deterministic")).hexdigest()[:12]


# ---------------------------------------------------------------------------------------------- beyond single values


def _contradictions(config: Config) -> Iterator[str]:
    """What each value allows and all together do not."""
    exporter = config.exporter
    if bool(exporter.tls_cert) != bool(exporter.tls_key):
        missing = "tls_key" if exporter.tls_cert else "tls_cert"
        yield f"exporter.{missing} is missing: a certificate and its key are given together"
    if exporter.client_ca and not exporter.tls_cert:
        yield "exporter.client_ca needs tls_cert and tls_key: only HTTPS has client certificates"
    yield from _alertmanager_contradictions(config)
    for number, webhook in enumerate(config.webhook):
        if not webhook.secret_file:
            yield f"webhook[{number}].secret_file is missing: every message is signed; name a file that holds the key"
    for key, value in (
        ("action.stop_file", config.action.stop_file),
        ("action.limits.partitions", config.action.limits.partitions),
        ("state.directory", config.state.directory),
        ("state.runtime_directory", config.state.runtime_directory),
    ):
        if value in {"", ()}:
            yield f"{key} is empty; leave it out to have its default"
    if config.action.scheduler == "command" and not config.command.path:
        yield 'action.scheduler is "command" and command.path is missing: name the executable'
    yield from _controller_contradictions(config)
    if not _TAINT_KEY.fullmatch(config.kubernetes.taint_key):
        key = config.kubernetes.taint_key
        yield f'kubernetes.taint_key: "{key}" is no key of a taint; write it like example.org/name'
    yield from _slurm_contradictions(config.slurm)
    if not config.devices.include:
        yield 'devices.include is empty, so no device is left; write ["*"] for all'


def _controller_contradictions(config: Config) -> Iterator[str]:
    controller = config.controller
    if config.action.scheduler == "controller":
        if config.node.name and not _NODE_NAME.fullmatch(config.node.name):
            yield f'node.name: the controller takes letters, digits, dots, - and _ only, not "{config.node.name}"'
        for key in ("url", "key_file"):
            if not getattr(controller, key):
                what = KEYS["controller"][key].help
                yield f'action.scheduler is "controller" and controller.{key} is missing: {what}'
    if controller.ca and not controller.url.startswith("https:"):
        yield "controller.ca names certificates and controller.url is not https://; write https, or remove it"
    if bool(controller.tls_cert) != bool(controller.tls_key):
        missing = "tls_key" if controller.tls_cert else "tls_cert"
        yield f"controller.{missing} is missing: a certificate and its key are given together"
    for key, pattern in _CONTROLLER_SHAPES.items():
        text = getattr(controller, key)
        if text and not pattern.fullmatch(text):
            yield f'controller.{key}: "{text}" is none of its forms; write {KEYS["controller"][key].example}'


def _slurm_contradictions(slurm: SlurmConfig) -> Iterator[str]:
    if slurm.rest_url.startswith("http") and not slurm.rest_token_file:
        yield "slurm.rest_token_file is missing: slurmrestd knows who asks by a token; name the file that holds it"
    if slurm.rest_ca and slurm.rest_url and not slurm.rest_url.startswith("https:"):
        yield "slurm.rest_ca has no use without https in slurm.rest_url; write https, or remove it"
    if slurm.rest_user and slurm.rest_url and not slurm.rest_token_file:
        yield "slurm.rest_user needs rest_token_file: without a token slurmrestd goes by the user of the process"
    if slurm.rest_version and slurm.rest_version not in REST_VERSIONS:
        version, known = slurm.rest_version, f"{REST_VERSIONS[0]} (Slurm 23.02) to {REST_VERSIONS[-1]}"
        yield f'slurm.rest_version: "{version}" is not known; write one of {known}, or leave it out for the newest'


def _alertmanager_contradictions(config: Config) -> Iterator[str]:
    for number, target in enumerate(config.alertmanager):
        place = f"alertmanager[{number}]"
        if target.basic_auth_file and target.bearer_token_file:
            yield f"{place} has both basic_auth_file and bearer_token_file; keep one of them"
        if target.client_key and not target.client_cert:
            yield f"{place}.client_cert is missing: a key is given together with its certificate"
        if (target.ca or target.client_cert) and not target.url.startswith("https:"):
            yield f"{place} names certificates and its url is not https://; write https, or remove them"


def _doubts(config: Config) -> Iterator[str]:
    """What is allowed and perhaps not meant."""
    if config.action.mode is Mode.DRAIN and config.action.scheduler == "none":
        yield 'action.mode is "drain" with action.scheduler = "none": nothing will be drained; name the scheduler'
    if config.inventory.mode == "declared" and not config.port:
        yield 'inventory.mode is "declared" and there is no [[port]]: no port is judged'
    for number, port in enumerate(config.port):
        if port.count is not None and not set("*?") & set(port.match):
            yield f"port[{number}].count has no effect: {port.match} stands for every port it can mean; use * or ?"
    for rule, set_ in config.rules.items():
        yield from _rule_doubts(f"rules.{rule}", rule, set_, None)
    for number, override in enumerate(config.override):
        yield from _rule_doubts(f"override[{number}]", override.rule, override, config.rules.get(override.rule))
    listen = config.exporter.listen
    if config.exporter.basic_auth_file and not config.exporter.tls_cert and not _loopback(listen):
        yield f"exporter.basic_auth_file without tls_cert: passwords cross the network in clear at {listen}"
    yield from _slurm_doubts(config.slurm)
    yield from _target_doubts(config)


def _rule_doubts(place: str, rule: str, layer: RuleConfig, under: RuleConfig | None) -> Iterator[str]:
    """What a table of a rule's settings says against what it leaves as it is; `under` is what it is laid over."""
    row = RULE_BY_ID.get(rule)
    if row is None:
        yield f"{place} has no effect: this version does not judge the rule {rule}"
        return
    below = of_rule(row) if under is None else lay(of_rule(row), under)
    hold = below.hold if layer.hold is None else layer.hold
    if layer.alert_hold is not None and layer.alert_hold > hold:
        yield f"{place}.alert_hold is above hold ({duration_text(hold)}): it alerts when hold is over; lower it"
    in_force = lay(below, layer)
    key = "warning" if layer.warning is not None else "warning_per_hour"
    comparable = in_force.warning_unit == in_force.critical_unit and in_force.critical is not None
    if getattr(layer, key) is not None and comparable and getattr(layer, key) > in_force.critical:
        yield f"{place}.{key} is above critical ({in_force.critical:g}): it would never come first; write both"


def _slurm_doubts(slurm: SlurmConfig) -> Iterator[str]:
    if not slurm.rest_url:
        for name in ("rest_token_file", "rest_user", "rest_ca", "rest_version"):
            if getattr(slurm, name):
                yield f"slurm.{name} has no effect without rest_url: Slurm is asked through scontrol"
    elif slurm.directory:
        yield "slurm.directory has no effect with rest_url: Slurm is asked through slurmrestd"
    if _in_clear(slurm.rest_url):
        yield "slurm.rest_url is not https: the token crosses the network in clear"


def _target_doubts(config: Config) -> Iterator[str]:
    if config.action.mode is Mode.OBSERVE:
        for name, targets, what in (
            ("alertmanager", config.alertmanager, "alerts"),
            ("webhook", config.webhook, "messages"),
        ):
            if targets:
                yield f'[[{name}]] has no effect: action.mode is "observe"; write "alert" to have {what} sent'
    for number, webhook in enumerate(config.webhook):
        if not webhook.events:
            yield f"webhook[{number}].events is empty, so nothing is sent there; leave it out to send all"
    for number, target in enumerate(config.alertmanager):
        credentials = target.basic_auth_file or target.bearer_token_file
        if credentials and _in_clear(target.url):
            yield f"alertmanager[{number}] has credentials and no https: they cross the network in clear"


def _in_clear(url: str) -> bool:
    """Whether others on the network can read what is sent there."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "http" and not _loopback(f"[{host}]:" if ":" in host else f"{host}:")


def _loopback(listen: str) -> bool:
    host = listen.rpartition(":")[0]
    return host in {"localhost", "[::1]"} or host.startswith("127.")


def _host_doubts(config: Config) -> Iterator[str]:
    """What this host's files say against the configuration."""
    exporter = config.exporter
    targets = {
        f"alertmanager[{n}].{name}": getattr(target, name)
        for n, target in enumerate(config.alertmanager)
        for name in ("basic_auth_file", "bearer_token_file", "ca", "client_cert", "client_key")
    }
    controller = config.controller
    named = {
        **{
            f"controller.{name}": getattr(controller, name)
            for name in ("key_file", "ca", "master_key_file", "tokens_file", "tls_cert", "tls_key")
        },
        "exporter.tls_cert": exporter.tls_cert,
        "exporter.tls_key": exporter.tls_key,
        "exporter.client_ca": exporter.client_ca,
        "exporter.basic_auth_file": exporter.basic_auth_file,
        "slurm.rest_token_file": config.slurm.rest_token_file,
        "slurm.rest_ca": config.slurm.rest_ca,
        "kubernetes.kubeconfig": config.kubernetes.kubeconfig,
        "command.path": config.command.path,
        **targets,
        **{f"webhook[{n}].secret_file": w.secret_file for n, w in enumerate(config.webhook)},
    }
    for key, name in named.items():
        if name:
            yield from _file_doubts(key, Path(name))


def _file_doubts(key: str, path: Path) -> Iterator[str]:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        yield f"{key}: {path}: {error.strerror}"
        return
    if stat.S_ISDIR(mode):
        yield f"{key}: {path} is a directory"
    elif key == "command.path" and not mode & _ANYBODY_RUNS:
        yield f"{key}: {path} is no executable; chmod 755 {path}"
    elif key.endswith(_SECRETS) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield f"{key}: {path} can be opened by others than its owner; chmod 600 {path}"
