"""Which ports this node should have: declared in the configuration, or learned by having seen them ACTIVE.

Also the roles: by configuration, else a safe guess that never makes a doubtful port a compute port.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

import msgspec

from ibmon.config import Config, PortConfig
from ibmon.health.facts import GBPS
from ibmon.model import Device, Function, Port, PortId, Role

FEW_PORTS = 4
"""On an all-Ethernet node fewer ports of one board and rate than this are not taken for compute rails by guess."""

NOT_JUDGED = frozenset({Function.VF, Function.SF, Function.SMI, Function.REPRESENTOR})


class Learned(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of a slot: its name and role, whether it was ever ACTIVE, its best rate (bytes per second).

    `accepted` is a person's word that this port belongs here; `card` the node GUID that history belongs to.
    """

    name: str
    role: Role
    active: bool
    best_rate: int | None
    accepted: bool = False
    card: str = ""


class Expected(msgspec.Struct, frozen=True):
    """One port of the inventory, present or not.

    `slot` is its identity, and no two rows share one. `rate` is in bytes per second, None: any. `known_as` is the name
    by which the configuration expects the slot, where the port in it has another one now.
    """

    id: PortId
    slot: str
    role: Role
    expected: bool
    declared: bool
    trusted: bool
    rate: int | None
    rail: int | None
    device: Device | None
    port: Port | None
    known_as: str | None = None


_CLASS = re.compile(r"\[([^\]!*?]+)\]")
_WILD = re.compile(r"[*?]|\[![^\]]*\]")
MOST_NAMES = 1000
"""So many names are tried for ports that a pattern must find and that nobody has seen."""


def expand(pattern: str) -> list[str] | None:
    """The names that a literal or a pattern with ``[…]`` classes stands for; None with ``*`` or ``?``."""
    if "*" in pattern or "?" in pattern or "[!" in pattern:
        return None
    found = _CLASS.search(pattern)
    if not found:
        return [pattern]
    names = []
    for character in _members(found.group(1)):
        rest = expand(pattern[: found.start()] + character + pattern[found.end() :])
        names.extend(rest or [])
    return names


def _members(inside: str) -> list[str]:
    """Characters of a class: ``0-7`` or ``0245``."""
    out: list[str] = []
    i = 0
    while i < len(inside):
        if i + 2 < len(inside) and inside[i + 1] == "-":
            out.extend(chr(c) for c in range(ord(inside[i]), ord(inside[i + 2]) + 1))
            i += 3
        else:
            out.append(inside[i])
            i += 1
    return out


def matches(entry: PortConfig, device: Device, port: Port) -> bool:
    """Whether an inventory entry names this port: by ``device/port``, ``guid:…`` or ``pci:…`` (port 1 if not said)."""
    kind, _, rest = entry.match.partition(":")
    if kind in ("guid", "pci"):
        key, slash, number = rest.rpartition("/")
        key, wanted = (key, number) if slash and number.isdigit() else (rest, "1")
        own = device.node_guid if kind == "guid" else (device.pci.address if device.pci else None)
        return own == key.lower() and str(port.id.port) == wanted
    return fnmatchcase(str(port.id), entry.match)


def guess_roles(devices: Iterable[Device], default_route: Collection[str] = ()) -> dict[PortId, Role]:
    """Roles where the configuration says nothing.

    Functions that are not a card's own (VF, SF, …) are ignored. Beside InfiniBand ports an Ethernet port is
    management; on an all-Ethernet node the port with the default route, a bond, and any of fewer than four ports of the
    same board is management.

    Args:
        devices: what is there.
        default_route: network interfaces that lead to everywhere else.
    """
    judged = [(d, p) for d in devices if d.function not in NOT_JUDGED for p in d.ports]
    roles = {p.id: Role.IGNORED for d in devices if d.function in NOT_JUDGED for p in d.ports}
    infiniband = any(p.link_layer == "InfiniBand" for _, p in judged)
    board: dict[tuple[str | None, str | None], int] = {}
    for d, _ in judged:
        if d.function is not Function.BOND:
            board[d.board_id, d.driver] = board.get((d.board_id, d.driver), 0) + 1
    for d, p in judged:
        if p.link_layer == "InfiniBand":
            role = Role.COMPUTE
        elif (
            infiniband
            or p.netdev in default_route
            or d.function is Function.BOND
            or board[d.board_id, d.driver] < FEW_PORTS
        ):
            role = Role.MANAGEMENT
        else:
            role = Role.COMPUTE
        roles[p.id] = role
    return roles


def take(
    config: Config,
    devices: Mapping[str, Device],
    learned: Mapping[str, Learned],
    default_route: Collection[str] = (),
) -> dict[PortId, Expected]:
    """The inventory: every port that is present, and every port that should be.

    A port never seen ACTIVE and not declared is not expected, so not a fault.
    """
    guessed = guess_roles(devices.values(), default_route)
    slots_of = _slots(devices.values(), learned)
    inventory: dict[PortId, Expected] = {}
    for device in devices.values():
        for port in device.ports:
            slot = slots_of[port.id]
            known = learned.get(slot)
            entry = next((e for e in config.port if matches(e, device, port)), None)
            row = _present(config, entry, device, port, slot, known)
            if entry is None and config.inventory.mode == "learn":
                role = guessed[port.id]
                seen = known is not None and known.active
                row = msgspec.structs.replace(row, role=role, expected=role is not Role.IGNORED and seen)
            inventory[port.id] = row
    for entry in config.port:
        _add_absent(entry, inventory, learned)
    slots = {e.slot for e in inventory.values()}
    for slot, known in learned.items():
        if known.active and slot not in slots:
            forgotten = _forgotten(config, slot, known)
            if forgotten is not None:
                inventory.setdefault(forgotten.id, forgotten)
    for entry in config.port:
        if entry.count is not None and entry.role is not Role.IGNORED and expand(entry.match) is None:
            _fill_up(config, entry, entry.count, inventory)
    return _with_rails(inventory)


def _rate(entry: PortConfig | None, known: Learned | None) -> int | None:
    if entry is not None and entry.rate is not None:
        return round(entry.rate * GBPS)
    return known.best_rate if known else None


def _trusted(config: Config, entry: PortConfig | None, known: Learned | None) -> bool:
    """Whether a person stands behind this port being expected, or the site trusts what was learned."""
    return entry is not None or config.inventory.trust == "learned" or (known is not None and known.accepted)


def _slots(devices: Iterable[Device], learned: Mapping[str, Learned]) -> dict[PortId, str]:
    """The slot of every port that is there.

    Without a PCI address a slot is called by a name. Where nothing is known of the name, and the card's GUID is known
    of a slot whose name is not there any more, it is that slot under another name.
    """
    ports = [(device, port.id, device.slot(port.id.port)) for device in devices for port in device.ports]
    free = learned.keys() - {slot for _, _, slot in ports}
    by_card = {(learned[slot].card, slot.rpartition("/")[2]): slot for slot in free if ":" not in slot}
    slots: dict[PortId, str] = {}
    for device, port, slot in ports:
        renamed = device.pci is None and device.node_guid and slot not in learned
        slots[port] = by_card.pop((device.node_guid or "", str(port.port)), slot) if renamed else slot
    return slots


def _present(
    config: Config, entry: PortConfig | None, device: Device, port: Port, slot: str, known: Learned | None
) -> Expected:
    """The inventory's row for a port that is there; a role the configuration does not give is guessed by the caller."""
    ever_active = known is not None and known.active
    if entry is not None:
        role = entry.role
        expected = role is not Role.IGNORED and (expand(entry.match) is not None or ever_active)
    else:
        role = Role.IGNORED
        expected = False
    return Expected(
        id=port.id,
        slot=slot,
        role=role,
        expected=expected,
        declared=entry is not None,
        trusted=_trusted(config, entry, known),
        rate=_rate(entry, known),
        rail=entry.rail if entry else None,
        device=device,
        port=port,
    )


def _absent(
    entry: PortConfig, inventory: Mapping[PortId, Expected], learned: Mapping[str, Learned]
) -> Iterable[Expected]:
    """Ports that an entry names literally and that are not there."""
    if entry.role is Role.IGNORED:
        return
    kind, _, rest = entry.match.partition(":")
    if kind in ("guid", "pci"):
        present = any(e.device and e.port and matches(entry, e.device, e.port) for e in inventory.values())
        if not present:
            key, slash, number = rest.rpartition("/")
            slot = rest if slash and number.isdigit() else f"{rest}/1"
            known = learned.get(slot)
            free = known is not None and PortId.parse(known.name) not in inventory  # else another card has the name
            name = known.name if known and free else f"{kind}:{key or rest}/{slot.rpartition('/')[2]}"
            yield _missing(entry, PortId.parse(name), slot, known)
        return
    for name in expand(entry.match) or ():
        port = PortId.parse(name)
        if port not in inventory:
            slot = next((s for s, k in learned.items() if k.name == name), name)
            yield _missing(entry, port, slot, learned.get(slot))


def _add_absent(entry: PortConfig, inventory: dict[PortId, Expected], learned: Mapping[str, Learned]) -> None:
    """Put the ports that an entry names and that are not there into the inventory."""
    for missing in _absent(entry, inventory, learned):
        row = _in_its_slot(missing, inventory)
        if row.known_as is not None or row.id not in inventory:
            inventory[row.id] = row


def _fill_up(config: Config, entry: PortConfig, count: int, inventory: dict[PortId, Expected]) -> None:
    """Expect as many ports as the entry must find: those that were ACTIVE, then others that are there, then names."""
    named = [row for row in inventory.values() if _entry_of(config, row) is entry]
    short = count - sum(row.expected for row in named)
    for row in sorted((row for row in named if not row.expected), key=lambda row: (row.slot, row.id)):
        if short > 0:
            inventory[row.id] = msgspec.structs.replace(row, expected=True)
            short -= 1
    for name in _names(entry.match) if short > 0 else ():
        port = PortId.parse(name)
        if short > 0 and port not in inventory:
            missing = _missing(entry, port, name, None)
            if _entry_of(config, missing) is entry:
                inventory[port] = missing
                short -= 1


def _entry_of(config: Config, row: Expected) -> PortConfig | None:
    """The entry that speaks for a port, there or not: the first that matches."""
    for entry in config.port:
        if (
            matches(entry, row.device, row.port)
            if row.device and row.port
            else fnmatchcase(row.known_as or str(row.id), entry.match)
        ):
            return entry
    return None


def _names(pattern: str) -> Iterable[str]:
    """Names that a pattern with wildcards may mean, for ports that nobody has seen: numbers in the place of those."""
    device, _, number = pattern.rpartition("/")
    for i in range(MOST_NAMES):
        one = _WILD.sub(str(i), device)
        port = number if one != device else _WILD.sub(str(i + 1), number)
        for name in expand(f"{one}/{_WILD.sub('1', port)}") or ():
            if fnmatchcase(name, pattern):
                yield name


def _in_its_slot(missing: Expected, inventory: Mapping[PortId, Expected]) -> Expected:
    """The row for a port that is missing by name: the port in its slot, if that is there under another name.

    A rename is nothing: what is expected belongs to the slot.
    """
    holder = next((e for e in inventory.values() if e.slot == missing.slot), None)
    if holder is None:
        return missing
    if holder.declared:
        return msgspec.structs.replace(missing, slot=str(missing.id))  # its slot is another entry's now
    return msgspec.structs.replace(
        holder,
        role=missing.role,
        expected=True,
        declared=True,
        trusted=True,
        rate=missing.rate,
        rail=missing.rail,
        known_as=str(missing.id),
    )


def arrivals(config: Config, inventory: Mapping[PortId, Expected], learned: Mapping[str, Learned]) -> dict[str, str]:
    """The slots of ports that were expected before anyone knew where they are, and now are there.

    Until a port is seen it is remembered under what the configuration calls it, or, where that only counts ports, may
    call it; what is open about it goes with it.

    Returns:
        By slot, the name under which it is remembered.
    """
    taken = {row.slot for row in inventory.values()}
    unseen = {slot for slot, known in learned.items() if not known.active and not known.card and slot not in taken}
    found: dict[str, str] = {}
    for row in inventory.values():
        if row.device is not None and row.slot not in learned:
            names = (str(row.id), f"{row.device.node_guid}/{row.id.port}")
            name = next((n for n in names if n in unseen), None)
            entry = _entry_of(config, row)
            if name is None and entry is not None and entry.count is not None:
                name = next((n for n in sorted(unseen) if fnmatchcase(n, entry.match)), None)
            if name is not None:
                unseen.discard(name)
                found[row.slot] = name
    return found


def _missing(entry: PortConfig, port: PortId, slot: str, known: Learned | None) -> Expected:
    return Expected(
        id=port,
        slot=slot,
        role=entry.role,
        expected=True,
        declared=True,
        trusted=True,
        rate=_rate(entry, known),
        rail=entry.rail,
        device=None,
        port=None,
    )


def _forgotten(config: Config, slot: str, known: Learned) -> Expected | None:
    """A learned port whose device is not there now, unless the configuration leaves it out.

    Where only declared ports are judged it is one that an entry with ``*`` or ``?`` names: it was seen.
    """
    port = PortId.parse(known.name)
    entry = next((e for e in config.port if fnmatchcase(known.name, e.match)), None)
    if config.inventory.mode == "declared" and (entry is None or expand(entry.match) is not None):
        return None
    role = entry.role if entry else known.role
    included = any(fnmatchcase(port.device, p) for p in config.devices.include)
    excluded = any(fnmatchcase(port.device, p) for p in config.devices.exclude)
    if role is Role.IGNORED or not included or excluded:
        return None  # a changed configuration is not an observation
    return Expected(
        id=port,
        slot=slot,
        role=role,
        expected=True,
        declared=entry is not None,
        trusted=_trusted(config, entry, known),
        rate=_rate(entry, known),
        rail=entry.rail if entry else None,
        device=None,
        port=None,
    )


def _with_rails(inventory: dict[PortId, Expected]) -> dict[PortId, Expected]:
    """Number the compute ports by PCI address where the configuration gave no rail."""
    compute = sorted((e.slot, e.id) for e in inventory.values() if e.role is Role.COMPUTE and e.expected)
    position = {port: i for i, (_, port) in enumerate(compute)}
    return {
        port: msgspec.structs.replace(e, rail=position[port]) if e.rail is None and port in position else e
        for port, e in sorted(inventory.items())
    }
