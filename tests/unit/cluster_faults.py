"""A scheduler and a store whose every call can fail, and calls of reconcile with them."""

from __future__ import annotations

import msgspec

from ibmon.config import LimitsConfig
from ibmon.drain import reconcile
from ibmon.drain.reconcile import Gates
from ibmon.model import Intent, Mode, NodeView, Now, Ownership
from ibmon.ports import SchedulerError, StoreError

ID = "7f3a9c"
REASON = f"ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id {ID}]"
INTENT = Intent(drain=True, id=ID, reason=REASON, since=990.0)
ASKED = Ownership(ID, REASON, asked=1000.0)
HELD = msgspec.structs.replace(ASKED, held=True)
NOW = Now(50.0, 1000.0)


class Pool(msgspec.Struct):
    name: str
    nodes: tuple[NodeView, ...]


class Killed(BaseException):
    """The process dies here."""


class Cluster:
    """A scheduler whose next calls can be made to fail, to be carried out late, or to be raced by a person."""

    def __init__(self, flags=("IDLE",), reason=None, others=99):
        self.flags, self.reason, self.since, self.user = set(flags), reason, 500.0 if reason else None, "root"
        self.others = [NodeView(f"x{i}", frozenset({"IDLE"})) for i in range(others)]
        self.calls, self.faults, self.behind = [], {}, {}

    def _call(self, name):
        self.calls.append(name)
        faults = self.faults.get(name)
        fault = faults.pop(0) if faults else None
        if isinstance(fault, BaseException):
            raise fault
        return fault

    def read_node(self):
        self._call("read_node")
        return self.view()

    def view(self):
        return NodeView("n1", frozenset(self.flags), self.reason, self.user if self.reason else None, self.since)

    def read_pools(self):
        self._call("read_pools")
        return (Pool("gpu", (self.view(), *self.others)),)

    def drain(self, reason):
        fault = self._call("drain")
        if fault != "lost":
            self.flags, self.reason, self.since = self.flags | {"DRAIN"}, reason, 1000.0
        self._afterwards("drain")

    def undrain(self):
        fault = self._call("undrain")
        if fault != "lost":
            self.flags, self.reason, self.since = self.flags - {"DRAIN"}, None, None
        self._afterwards("undrain")

    def _afterwards(self, name):
        if action := self.behind.get(name):
            action(self)

    @property
    def writes(self):
        return [call for call in self.calls if call in {"drain", "undrain"}]


class Memory:
    """A store in memory whose saves can be made to fail."""

    def __init__(self, owned=None, *, broken=False, unreadable=False):
        self.owned, self.broken, self.unreadable, self.history = owned, broken, unreadable, []

    def ownership(self):
        if self.unreadable:
            raise StoreError("disk gone")
        return self.owned

    def record(self, owned):
        if self.broken:
            raise StoreError("disk full")
        self.owned = owned
        self.history.append(owned)


def gates(mode=Mode.DRAIN, *, stop=False, limits=None):
    return Gates(mode=lambda: mode, stop=lambda: stop, limits=limits or LimitsConfig())


def drain(cluster, store, gate=None, intent=INTENT):
    return reconcile.drain(intent, cluster, store, gate or gates(), NOW)


def release(cluster, store, gate=None, owned=HELD, now=NOW):
    return reconcile.release(owned, cluster, store, gate or gates(), now)


def drained(reason=REASON, flags=("IDLE", "DRAIN"), **more):
    return Cluster(flags, reason, **more)


def said(done):
    return done.outcome, done.code


TIMEOUT = SchedulerError("scontrol gave no answer within 10 s")
REFUSED = SchedulerError("Invalid user id", forbidden=True)
