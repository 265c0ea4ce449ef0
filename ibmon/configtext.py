"""The configuration as text: effective values with their origins, the commented example, the reference page.

Pure: texts from the key table and a configuration. `python -m ibmon.configtext` prints docs/configuration.md.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ibmon.config import Config
from ibmon.configbuild import ENTRIES
from ibmon.configkeys import KEYS, NOT_IN_FILES, RULE_KEYS, SECTIONS, TABLE_ARRAYS, Key, Kind
from ibmon.configvalues import write
from ibmon.health.rules import RULE_BY_ID

WIDTH = 100


def to_toml(config: Config, origins: Mapping[str, str] | None = None) -> str:
    """The effective configuration; loading it gives an equal one.

    Each line ends with where its value came from, where `origins` knows it. Secrets cannot show: a configuration
    holds only the names of their files.
    """
    origins = origins or {}
    out: list[str] = []
    for section in KEYS:
        out += _shown_section(config, section, origins)
    return "\n".join(out).lstrip("\n") + "\n"


def _shown_section(config: Config, section: str, origins: Mapping[str, str]) -> Iterator[str]:
    if section in TABLE_ARRAYS:
        for number, entry in enumerate(getattr(config, section)):
            yield from (f"\n[[{section}]]", *_shown_keys(entry, section, f"{section}[{number}]", origins))
    elif section == "rules":
        for rule, entry in config.rules.items():
            yield from (f"\n[rules.{rule}]", *_shown_keys(entry, section, f"rules.{rule}", origins))
    else:
        yield from (f"\n[{section}]", *_shown_keys(part(config, section), section, section, origins))


def _shown_keys(values: Any, section: str, path: str, origins: Mapping[str, str]) -> Iterator[str]:
    for name, key in KEYS[section].items():
        value = getattr(values, name)
        if value is None:
            continue
        line = f"{name} = {write(key, value)}"
        if section == "action.limits" and name == "min_nodes" and not values.min_nodes_set:
            line = f"# {line}"  # written, it would hold for tiny partitions too
        origin = origins.get(f"{path}.{name}")
        yield f"{line:<40} # {origin}" if origin else line


def part(config: Config, section: str) -> Any:
    """The section of a configuration by its dotted name."""
    found: Any = config
    for name in section.split("."):
        found = getattr(found, name)
    return found


def to_builtins(config: Config) -> dict[str, Any]:
    """The effective configuration for programs: durations in seconds, shares as 0..1, rates in Gb/s."""
    found: dict[str, Any] = msgspec.to_builtins(config)
    for name in NOT_IN_FILES:
        found["action"]["limits"].pop(name)
    found["rules"] = {rule: {k: v for k, v in keys.items() if v is not None} for rule, keys in found["rules"].items()}
    for section in TABLE_ARRAYS:
        found[section] = [{k: v for k, v in entry.items() if v is not None} for entry in found[section]]
    return found


# -------------------------------------------------------------------------------------------------------- the example

_SAMPLES: Mapping[str, Sequence[str]] = {
    "port": (
        '[[port]]\nmatch = "mlx5_[0-7]/1"\nrole = "compute"\nrate = 400\nrail = 0\n',
        '[[port]]\nmatch = "mlx5_[89]/1"\nrole = "storage"\n',
        '[[port]]\nmatch = "pci:0000:1a:00.0/1"\nrole = "ignored"\n',
        '[[port]]\nmatch = "rocep*/1"\nrole = "compute"\ncount = 8\n',
    ),
    "rules": (
        '[rules.port-down]\nalert_hold = "30s"\nhold = "60s"\nrecover = "10m"\n',
        '[rules.rate-low]\nhold = "60s"\nrecover = "5m"\n',
        '[rules.device-missing]\nhold = "120s"\nrecover = "10m"\n',
        '[rules.link-flap]\nwarning = 2\ncritical = 3\nwindow = "24h"\nrecover = "24h"\naction = "drain"\n',
        "[rules.receive-errors]\nwarning_per_hour = 10\ncritical_per_hour = 100\n",
        "[rules.monitor-blind]\npolls = 6\n",
        "[rules.retransmits]\nenabled = false\n",
    ),
    "override": (
        '[[override]]\nmatch = "mlx5_8/1"\nrule = "rate-low"\naction = "alert"\n',
        '[[override]]\nrole = "storage"\nrule = "port-down"\nalert_hold = "2m"\nhold = "5m"\n',
    ),
    "alertmanager": ('[[alertmanager]]\nurl = "http://alertmanager:9093"\nresend_interval = "1m"\n',),
    "webhook": ('[[webhook]]\nurl = "https://hooks.example.org/ibmon"\nsecret_file = "/etc/ibmon/webhook.key"\n',),
}

_HEAD = """\
# ibmon: every key with its default. As it stands this file changes nothing; lines that begin with "#:" are
# samples to take over. Durations are written "500ms", "5s", "10m", "1h30m". Files in conf.d are laid over this
# one in the order of their names. `ibmon config check` tells what is wrong, `ibmon config show` what holds.
"""


def example() -> str:
    """A complete commented configuration file that holds the defaults, with samples of what has none."""
    out = [_HEAD]
    defaults = Config()
    for section, text in SECTIONS.items():
        out += ["", *(f"# {line}" for line in textwrap.wrap(text, WIDTH))]
        if section in _SAMPLES:
            for sample in _SAMPLES[section]:
                out += [*(f"#: {line}" for line in sample.splitlines()), ""]
            out.pop()
        else:
            out += [f"[{section}]", *_example_keys(part(defaults, section), section)]
    return "\n".join(out) + "\n"


def _example_keys(values: Any, section: str) -> Iterator[str]:
    for name, key in KEYS[section].items():
        value = getattr(values, name)
        unset = value is None or name == "min_nodes"
        line = f"{name} = {key.example if value is None else write(key, value)}"
        yield f"{'#: ' + line if unset else line:<44} # {key.help}"


def uncommented(text: str) -> str:
    """An example with its samples put in force."""
    return "".join(line.removeprefix("#: ") for line in text.splitlines(keepends=True))


# -------------------------------------------------------------------------------------------------- the reference page

_WRITTEN: Mapping[Kind, str] = {
    Kind.DURATION: "duration",
    Kind.SHARE: "share",
    Kind.FLAG: "`true` or `false`",
    Kind.NUMBER: "number",
    Kind.WHOLE: "whole number",
    Kind.FILE: "absolute path",
    Kind.MATCH: "port",
    Kind.PORTS: "port pattern",
    Kind.PATTERNS: "list of shell patterns",
    Kind.TEXTS: "list of names",
    Kind.CHOICES: "list",
    Kind.URL: "http or https URL",
    Kind.ADDRESS: "http or https URL",
    Kind.ADDRESS_IF_ANY: "http or https URL, or empty",
    Kind.SERVER: "URL or `unix:` path",
    Kind.LISTEN: "address",
    Kind.NAME: "name",
}

_PAGE_HEAD = """\
# Configuration

This page is made from the table that the program reads with: `python -m ibmon.configtext > docs/configuration.md`.

`/etc/ibmon/ibmon.toml` is read first, then `/etc/ibmon/conf.d/*.toml` in byte order of their names. A later file
replaces single values of an earlier one; `[[port]]`, `[[webhook]]` and other lists are appended to. Without any file
the defaults hold, which observe and do nothing else. A file named by `--config` stands alone and must exist.

- A **duration** is written `"500ms"`, `"5s"`, `"10m"`, `"1h30m"`, `"2d"`; a bare number is refused.
- A **share** is written `"2%"` or `0.02`.
- A **port** is named `device/port` with shell patterns (`"mlx5_[0-7]/1"`); in `[[port]]` also
  `"guid:a088:c203:0012:3456"` or `"pci:0000:1a:00.0"` with an optional `/port` (left out: port 1).
- A key that is not known stops the start, with the nearest one that is.

`ibmon config check` names every problem with its file and line (exit 2) and what looks unintended (exit 0);
`ibmon config show` prints the values in force and where each came from; `ibmon config example` prints a file to start
from. SIGHUP (`systemctl reload ibmon`) reads the files anew; if they cannot be used, what ran before stays in force.
"""


def reference() -> str:
    """docs/configuration.md."""
    out = [_PAGE_HEAD]
    defaults = Config()
    for section, keys in KEYS.items():
        title = {"rules": "[rules.NAME]"}.get(section, f"[[{section}]]" if section in TABLE_ARRAYS else f"[{section}]")
        values = None if section in _SAMPLES else part(defaults, section)
        out += [f"## {title}", "", *textwrap.wrap(SECTIONS[section], 120), ""]
        out += ["| key | written as | default | meaning |", "|---|---|---|---|"]
        out += [_row(section, name, key, values) for name, key in keys.items()]
        out.append("")
        if section == "rules":
            out += [*_rule_table(), ""]
    return "\n".join(out)


def _row(section: str, name: str, key: Key, values: Any) -> str:
    if section == "override" and name in KEYS["rules"]:
        default = "as the rule"
    elif section == "rules":
        default = "the rule's own"
    elif values is None:
        default = _entry_default(section, name, key)
    else:
        value = getattr(values, name)
        default = "-" if value is None else f"`{write(key, value)}`"
    if key.choices and len(key.choices) <= 6:
        kind = ", ".join(f"`{choice}`" for choice in key.choices)
        kind = f"list of {kind}" if key.kind is Kind.CHOICES else kind
    else:
        kind = "rule" if name == "rule" else _WRITTEN[key.kind]
    return f"| `{name}` | {kind} | {default} | {key.help} |"


def _entry_default(section: str, name: str, key: Key) -> str:
    info = next(f for f in msgspec.structs.fields(ENTRIES[section]) if f.name == name)
    if info.required or name == "secret_file":
        return "required"
    return "-" if info.default is None else f"`{write(key, info.default)}`"


def _rule_table() -> Iterator[str]:
    yield "| rule | keys |"
    yield "|---|---|"
    for rule, keys in RULE_KEYS.items():
        idle = "" if rule in RULE_BY_ID else " (this version does not judge it)"
        yield f"| `{rule}`{idle} | {', '.join(f'`{key}`' for key in keys)} |"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
