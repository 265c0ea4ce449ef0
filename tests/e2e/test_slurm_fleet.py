"""Many nodes of a real Slurm go bad at once: what the limit lets stand, and that no job's start drains the others."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from services.hooks import Hooked
from services.processes import wait_for
from services.slurm import SlurmCluster

from ibmon.config import LimitsConfig, SlurmConfig
from ibmon.drain import policy, reconcile
from ibmon.drain.slurm import Slurm
from ibmon.model import BlockCode, Intent, Mode, Now
from ibmon.runtime.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibmon.messages import EffectDone

pytestmark = pytest.mark.timeout(180)

NODES = [f"node{number}" for number in range(1, 33)]
AT_ONCE = NODES[:20]
LIMIT = 2
LIMITS = LimitsConfig(new_per_minute=1000.0)
GATES = reconcile.Gates(mode=lambda: Mode.DRAIN, stop=lambda: False, limits=LIMITS)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hooked, SlurmCluster]]:
    hooks = Hooked(tmp_path_factory.mktemp("hooks"), NODES, health_check=False)
    with SlurmCluster(nodes=len(NODES), settings=hooks.settings) as cluster:
        yield hooks, cluster


class Member:
    """What a node's daemon has of its scheduler: a client, a store and a drain that it wants."""

    def __init__(self, slurm: SlurmCluster, name: str, number: int) -> None:
        self.name = name
        self.client = Slurm(
            SlurmConfig(node_name=name, directory=str(slurm.bin), timeout=60.0), environ=dict(slurm.env)
        )
        self.store = MemoryStore()
        mark = f"{number:06x}"
        self.intent = Intent(True, mark, f"ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id {mark}]", time.time())

    def drain(self) -> EffectDone:
        """One request, as the daemon makes it again and again."""
        return reconcile.drain(self.intent, self.client, self.store, GATES, Now(time.monotonic(), time.time()))

    def release(self) -> EffectDone:
        """Give back what is owned."""
        owned = self.store.ownership()
        assert owned is not None
        return reconcile.release(owned, self.client, self.store, GATES, Now(time.monotonic(), time.time()))


def drained(slurm: SlurmCluster) -> list[str]:
    """The nodes that are drained, and that nothing but ibmon has drained."""
    lines = slurm.client("sinfo", "--noheader", "--Node", "--format=%N|%T|%E").stdout.splitlines()
    found = []
    for line in sorted(set(lines)):
        name, state, reason = line.split("|")
        if "drain" in state:
            assert policy.parse_reason(reason), f"{name}: {reason}"
            found.append(name)
    return sorted(found)


def test_of_twenty_nodes_that_go_bad_at_once_no_more_than_the_limit_stay_drained(
    fleet: tuple[Hooked, SlurmCluster],
) -> None:
    _, slurm = fleet
    assert policy.allowed(len(NODES), LIMITS) == LIMIT
    members = [Member(slurm, name, number) for number, name in enumerate(AT_ONCE, 1)]
    counted = threading.Barrier(len(members), timeout=60)
    outcomes: dict[str, EffectDone] = {}

    def decide(member: Member) -> None:
        write = member.client.drain

        def drain(reason: str) -> None:
            counted.wait()  # all have counted, and for each there is room
            write(reason)

        member.client.drain = drain  # type: ignore[method-assign]
        outcomes[member.name] = member.drain()
        member.client.drain = write  # type: ignore[method-assign]

    threads = [threading.Thread(target=decide, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == len(members)

    for _ in range(2):  # and when they ask again, nothing moves any more
        standing = drained(slurm)
        assert len(standing) <= LIMIT
        kept = [member for member in members if member.store.ownership() is not None]
        assert sorted(member.name for member in kept) == standing
        beyond = [outcomes[member.name] for member in members if member not in kept]
        assert {(done.outcome, done.code) for done in beyond} == {("blocked", BlockCode.LIMIT_NODES)}
        outcomes = {member.name: member.drain() for member in members}
    for member in kept:
        assert member.release().outcome == "gone"
    assert drained(slurm) == []


def test_with_32_unfit_nodes_at_limit_two_a_job_starts_and_no_node_carries_a_prolog_error(
    fleet: tuple[Hooked, SlurmCluster],
) -> None:
    hooks, slurm = fleet
    members = [Member(slurm, name, number) for number, name in enumerate(NODES, 101)]
    outcomes = [member.drain() for member in members]
    held = [member for member, done in zip(members, outcomes, strict=True) if done.outcome == "done"]
    assert len(held) == LIMIT
    for member in members:
        hooks.verdict(member.name, held=member in held)  # all are unfit, and these two are drained

    job = slurm.client("srun", f"--nodes={len(NODES) - LIMIT}", "--time=1", "true")
    assert job.returncode == 0, job.stderr
    wait_for(
        lambda: "COMPLETING" not in slurm.scontrol("--oneliner", "show", "node").stdout, within=40, what="the epilogs"
    )
    assert len([name for name in NODES if hooks.calls("prolog", name)]) == len(NODES) - LIMIT
    assert drained(slurm) == sorted(member.name for member in held)
    assert "Prolog error" not in slurm.scontrol("--oneliner", "show", "node").stdout
    for member in held:
        assert member.release().outcome == "gone"
