"""From a tree of values to the typed configuration: every key known, every value of its kind, all problems listed.

Pure. Walks the structs of `ibmon/config.py` with the key table of `ibmon/configkeys.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from ibmon import config as c
from ibmon.configkeys import ERROR_RULES, KEYS, LONGEST, NOT_IN_FILES, REMEMBERED, RULE_KEYS, Key
from ibmon.configtree import Leaf, Node, Table
from ibmon.configvalues import parse
from ibmon.model import Mode, Role
from ibmon.nearest import nearest

DEFAULT = "default"
_S = TypeVar("_S", bound=msgspec.Struct)

_SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    "node": c.NodeConfig,
    "sampling": c.SamplingConfig,
    "devices": c.DevicesConfig,
    "inventory": c.InventoryConfig,
    "action": c.ActionConfig,
    "slurm": c.SlurmConfig,
    "kubernetes": c.KubernetesConfig,
    "command": c.CommandConfig,
    "controller": c.ControllerConfig,
    "exporter": c.ExporterConfig,
    "state": c.StateConfig,
}
ENTRIES: Mapping[str, type[msgspec.Struct]] = {
    "port": c.PortConfig,
    "override": c.OverrideConfig,
    "alertmanager": c.AlertmanagerConfig,
    "webhook": c.WebhookConfig,
}


class Builder:
    """Builds one configuration.

    `problems` are lines for people; `origins` says by dotted key where each value is from.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.origins: dict[str, str] = {}

    def build(self, root: Table) -> c.Config:
        """The configuration as far as it is sound; only to be used while `problems` is empty."""
        known = {f.encode_name for f in msgspec.structs.fields(c.Config)}
        found: dict[str, Any] = {}
        for name, struct in _SECTIONS.items():
            found[name] = self._section(struct, name, root.entries.get(name))
        for name, struct in ENTRIES.items():
            found[name] = self._entries(struct, name, root.entries.get(name))
        found["rules"] = self._rules(root.entries.get("rules"))
        for name, node in root.entries.items():
            if name not in known:
                self._stray(_origin(node), name)
        return c.Config(**found)

    # -------------------------------------------------------------------------------------------------- sections

    def _section(self, struct: type[_S], name: str, node: Node | None) -> _S:
        if node is not None and not isinstance(node, Table):
            self._problem(_origin(node), f"{name} is a table; write [{name}] on a line of its own and its keys below")
            node = None
        entries = node.entries if node else {}
        fields = _fields(struct)
        found: dict[str, Any] = {}
        for field in fields:
            path = f"{name}.{field}"
            if path in KEYS:  # a table below, [action.limits]
                found[field] = self._section(c.LimitsConfig, path, entries.get(field))
            else:
                self._value(found, KEYS[name][field], path, field, entries.get(field))
        for key, value in entries.items():
            if key not in fields:
                self._unknown(_origin(value), f"{name}.{key}", [f"{name}.{f}" for f in fields])
        if struct is c.LimitsConfig:
            found["min_nodes_set"] = "min_nodes" in entries
        return struct(**found)

    def _entries(self, struct: type[_S], name: str, node: Node | None) -> tuple[_S, ...]:
        if node is None or (isinstance(node, Leaf) and node.value == []):
            return ()
        if not isinstance(node, list):
            self._problem(_origin(node), f"{name} is a list of tables; write [[{name}]] with two brackets")
            return ()
        built = (self._entry(struct, name, number, table) for number, table in enumerate(node))
        return tuple(entry for entry in built if entry is not None)

    def _entry(self, struct: type[_S], name: str, number: int, table: Table) -> _S | None:
        fields = _fields(struct)
        path = f"{name}[{number}]"
        before = len(self.problems)
        found: dict[str, Any] = {}
        for field in fields:
            self._value(found, KEYS[name][field], f"{path}.{field}", field, table.entries.get(field))
        for key, node in table.entries.items():
            if key not in fields:
                self._unknown(_origin(node), f"{name}.{key}", [f"{name}.{f}" for f in fields])
        for info in msgspec.structs.fields(struct):
            if info.required and info.name not in table.entries:
                example = KEYS[name][info.name].example
                self._problem(table.origin, f"[[{name}]] has no {info.name}; write {info.name} = {example}")
        if struct is c.OverrideConfig:
            self._check_override(table, found.get("rule"))
        return struct(**found) if len(self.problems) == before else None

    def _check_override(self, table: Table, rule: str | None) -> None:
        if "match" not in table.entries and "role" not in table.entries:
            hint = f"[rules.{rule}]" if rule else "[rules.NAME]"
            self._problem(table.origin, f"[[override]] names neither match nor role; for all ports write {hint}")
        if rule is not None:
            self._fit(rule, table.entries, {"rule", "match", "role"}, "override")

    def _rules(self, node: Node | None) -> dict[str, c.RuleConfig]:
        if node is None:
            return {}
        if not isinstance(node, Table):
            self._problem(_origin(node), "rules is a table of tables; write [rules.port-down] and its keys below")
            return {}
        rules: dict[str, c.RuleConfig] = {}
        for rule, table in node.entries.items():
            if rule not in RULE_KEYS:
                self._unknown(_origin(table), f"rules.{rule}", [f"rules.{r}" for r in RULE_KEYS], "rule")
            elif not isinstance(table, Table):
                self._problem(_origin(table), f"rules.{rule} is a table; write [rules.{rule}] and its keys below")
            else:
                built = self._rule(rule, table)
                if built != c.RuleConfig():
                    rules[rule] = built
        return rules

    def _rule(self, rule: str, table: Table) -> c.RuleConfig:
        found: dict[str, Any] = {}
        for key in RULE_KEYS[rule]:
            if key in table.entries:  # what is left out keeps the rule's own default, which is not written here
                self._value(found, KEYS["rules"][key], f"rules.{rule}.{key}", key, table.entries[key])
        self._fit(rule, table.entries, set(), f"rules.{rule}")
        return c.RuleConfig(**found)

    def _fit(self, rule: str, entries: Mapping[str, Node], extra: set[str], path: str) -> None:
        """Every key one that the rule has, and its limits not at odds."""
        allowed = RULE_KEYS[rule]
        for key, node in entries.items():
            if key in allowed or key in extra:
                continue
            if key in KEYS["rules"]:
                self._problem(_origin(node), f"{path}.{key}: the rule {rule} has no {key}; it has {', '.join(allowed)}")
            elif path != "override":  # there it has been said already
                self._unknown(_origin(node), f"{path}.{key}", [f"{path}.{k}" for k in allowed])
        for limit in ("warning", "critical"):
            if rule in ERROR_RULES and isinstance(written := entries.get(limit), Leaf):
                self._ratio(f"{path}.{limit}", limit, written)
            if limit in entries and f"{limit}_per_hour" in entries:
                origin = _origin(entries[f"{limit}_per_hour"])
                self._problem(origin, f"{path}: {limit} and {limit}_per_hour say the same twice; keep one of them")
        for low, high in (("warning", "critical"), ("warning_per_hour", "critical_per_hour")):
            self._order(path, low, high, entries)
        self._within_memory(rule, entries, path)

    def _within_memory(self, rule: str, entries: Mapping[str, Node], path: str) -> None:
        """No limit or time that reaches beyond what is remembered, where it would be without effect."""
        most = REMEMBERED.get(rule)
        for key in ("warning", "critical"):
            limit = _number(key, entries)
            if most is not None and limit is not None and limit > most:
                text = f"{path}.{key}: no more than {most} are remembered, so it would never come; lower it"
                self._problem(_origin(entries[key]), text)
        for key in ("window", "recover") if "window" in RULE_KEYS[rule] else ():
            seconds = _number(key, entries)
            if seconds is not None and seconds > LONGEST:
                self._problem(_origin(entries[key]), f"{path}.{key}: what is counted is kept for 30d; write less")

    def _ratio(self, path: str, limit: str, leaf: Leaf) -> None:
        """A limit of an error rule is a bit error ratio; a count in its place would never be reached."""
        value = leaf.value
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 1:
            hint = f"for errors an hour write {limit}_per_hour = {value:g}"
            self._problem(leaf.origin, f"{path}: {value:g} is no ratio of bit errors; {hint}")

    def _order(self, path: str, low: str, high: str, entries: Mapping[str, Node]) -> None:
        values = (_number(low, entries), _number(high, entries))
        if values[0] is not None and values[1] is not None and values[0] > values[1]:
            self._problem(_origin(entries[low]), f"{path}.{low} is above {high}: it would never come first; lower it")

    def _stray(self, origin: str, name: str) -> None:
        """A key at the top of the file: a section's name misspelt, or a key whose section was forgotten."""
        places = [f"{section}.{name}" for section, keys in KEYS.items() if name in keys and section in _SECTIONS]
        if places:
            self._problem(origin, f"unknown key {name} outside of a section; did you mean {' or '.join(places)}?")
        else:
            self._unknown(origin, name, [section for section in KEYS if "." not in section])

    # ---------------------------------------------------------------------------------------------------- values

    def _value(self, found: dict[str, Any], key: Key, path: str, field: str, node: Node | None) -> None:
        if node is None:
            self.origins[path] = DEFAULT
            return
        self.origins[path] = _origin(node)
        try:
            if not isinstance(node, Leaf):
                raise ValueError(f"a table stands where a value belongs; write {field} = {key.example}")  # noqa: TRY004, TRY301
            value = parse(key, node.value)
        except ValueError as error:
            self._problem(_origin(node), f"{path}: {error}")
            return
        found[field] = _enum(field, value)

    def _problem(self, origin: str, text: str) -> None:
        self.problems.append(f"{origin}: {text}")

    def _unknown(self, origin: str, path: str, known: Iterable[str], what: str = "key") -> None:
        close = nearest(path, known)
        self._problem(origin, f"unknown {what} {path}" + (f"; did you mean {close}?" if close else "; remove it"))


def _number(key: str, entries: Mapping[str, Node]) -> float | None:
    """The value of a rule's key; None where there is none, or none that can be read, which is said elsewhere."""
    node = entries.get(key)
    if not isinstance(node, Leaf):
        return None
    try:
        value = parse(KEYS["rules"][key], node.value)
    except ValueError:
        return None
    return float(value)


def _enum(field: str, value: Any) -> Any:
    """`mode` of [inventory] is a plain word, all others of these names are the model's."""
    if field == "role":
        return Role(value)
    if field in {"action", "mode"} and value in set(Mode):
        return Mode(value)
    return value


def _fields(struct: type[msgspec.Struct]) -> list[str]:
    return [f.name for f in msgspec.structs.fields(struct) if f.name not in NOT_IN_FILES]


def by_place(problem: str) -> tuple[str, int]:
    """Sort key of problems: file, then line, as far as they name one."""
    place = re.match(r"(.*?):(\d+): ", problem)
    return (place[1], int(place[2])) if place else (problem.partition(":")[0], 0)


def _origin(node: Node) -> str:
    return node[0].origin if isinstance(node, list) else node.origin
