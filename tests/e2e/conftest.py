"""Services that several end-to-end tests share. Nothing skips: what cannot be started fails and says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from services.chromium import Browser
from services.slurm import SlurmCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

# Enough for the limits of ibmon to leave room for one drain while another test's node is still coming back.
SLURM_NODES = 8
_USED = pytest.StashKey[int]()


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """One cluster for the session; a test that changes a node takes one with `slurm_node`."""
    with SlurmCluster(nodes=SLURM_NODES) as cluster:
        yield cluster


@pytest.fixture
def slurm_node(slurm: SlurmCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The next node in turn, drained by nobody; whatever the test does to it is undone afterwards."""
    used = request.config.stash.get(_USED, 0)
    request.config.stash[_USED] = used + 1
    node = slurm.nodes[used % len(slurm.nodes)]
    yield node
    slurm.undrain(node)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for the session; each page that it opens is a stranger to the others."""
    with Browser() as running:
        yield running
