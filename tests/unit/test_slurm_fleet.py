"""All of Slurm through scontrol, as one who stands beside every node reads it: partitions, and leaves of the fabric."""

from __future__ import annotations

import pytest
from test_slurm import FakeSlurm, line

from ibmon.ports import SchedulerError


@pytest.fixture
def fake(tmp_path):
    return FakeSlurm(tmp_path)


def test_the_fleet_is_read_in_one_call_by_whoever_asks(fake):
    fake.prints(line(partitions="gpu") + "\n" + line(name="node2") + "\n")
    fleet = {pool.name: [view.name for view in pool.nodes] for pool in fake.client(name="").read_fleet()}
    assert fleet == {"all": ["node2"], "gpu": ["node1"]}
    assert [arguments for arguments, _ in fake.calls()] == [["--all", "--oneliner", "show", "node"]]


# `scontrol show topology` of 22.05 (topology/tree), 24.05 and 24.11 (topology/block).
TREE = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=node3,gpu[7-8]
SwitchName=spare Level=0 LinkSpeed=1
SwitchName=spine Level=1 LinkSpeed=1 Nodes=node[1-3],gpu[7-8] Switches=leaf[1-2]
"""
BLOCKS = """\
BlockName=b1 BlockIndex=0 Nodes=node[1-2] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=node3 BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=2 Nodes=node[1-3] BlockSize=4
"""
# Expands as `scontrol show hostnames` does: only ranges of one number, in their order.
TOPOLOGY = """
import re
what, text = sys.argv[2], sys.argv[-1]
if what == 'topology':
    print({topology!r}, end='')
for part in re.findall(r'[^,[]+(?:[[][^]]*[]])?', text) if what == 'hostnames' else []:
    name, low, high = re.fullmatch(r'([^[]*)(?:[[]([0-9]+)-([0-9]+)[]])?', part).groups()
    print(*[name + str(n) for n in range(int(low), int(high) + 1)] if low else [name], sep=chr(10))
"""


@pytest.mark.parametrize(
    ("printed", "leaves"),
    [
        (TREE, {"node1": "leaf1", "node2": "leaf1", "node3": "leaf2", "gpu7": "leaf2", "gpu8": "leaf2"}),
        (BLOCKS, {"node1": "b1", "node2": "b1", "node3": "b2"}),
    ],
)
def test_the_leaf_of_each_node_takes_two_calls(fake, printed, leaves):
    fake.script(TOPOLOGY.format(topology=printed))
    assert fake.client(name="").read_topology() == leaves
    assert [arguments[:2] for arguments, _ in fake.calls()] == [["show", "topology"], ["show", "hostnames"]]


@pytest.mark.parametrize(
    "printed", ["", "RingName=r Ring=node[1-2]\n", "SwitchName=s Level=1 LinkSpeed=1 Switches=t\n"]
)
def test_without_leaves_no_node_has_one(fake, printed):
    fake.script(TOPOLOGY.format(topology=printed))
    assert fake.client().read_topology() == {}
    assert len(fake.calls()) == 1


def test_host_lists_too_long_for_one_argument_are_expanded_in_several_calls(fake):
    nodes = [",".join(f"{letter * 1000}{n}" for n in range(60)) for letter in "abc"]
    fake.script(
        TOPOLOGY.format(
            topology="".join(f"SwitchName=s{i} Level=0 LinkSpeed=1 Nodes={n}\n" for i, n in enumerate(nodes))
        )
    )
    leaves = fake.client().read_topology()
    assert {leaf: list(leaves.values()).count(leaf) for leaf in leaves.values()} == {"s0": 60, "s1": 60, "s2": 60}
    assert len(fake.calls()) == 4


@pytest.mark.parametrize("printed", ["garbage\n", TREE + "and more\n"])
def test_a_topology_that_is_none_is_an_error(fake, printed):
    fake.script(TOPOLOGY.format(topology=printed))
    with pytest.raises(SchedulerError, match="prints something unknown"):
        fake.client().read_topology()


def test_host_lists_that_come_back_with_another_number_of_groups_are_an_error(fake):
    fake.script(TOPOLOGY.format(topology=TREE).replace("if what == 'hostnames' else []", "if False else []"))
    with pytest.raises(SchedulerError, match="gave 1 groups for 2 host lists"):
        fake.client().read_topology()
