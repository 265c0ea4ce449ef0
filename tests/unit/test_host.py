"""Who this host is, read from copies of the files in which the kernel says so."""

import pytest

from ibmon.runtime import host

ROUTE = """Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
{default}
eth9	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
"""
ROUTE6 = """fd000000000000000000000000000000 40 00000000000000000000000000000000 00 0{z} 00000100 00000001 0 00000001     eth8
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe80000000000000 00000400 00000001 0 00000003     {v6}
00000000000000000000000000000000 00 00000000000000000000000000000000 00 {z}0 ffffffff 00000001 0 00200200       lo
""".replace("{z}", "0" * 31)


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "net").mkdir()
    return tmp_path


def test_the_default_route_is_found_in_both_families(proc):
    (proc / "net/route").write_text(
        ROUTE.format(default="bond0	00000000	010200C0	0003	0	0	0	00000000	0	0	0")
    )
    (proc / "net/ipv6_route").write_text(ROUTE6.replace("{v6}", "eth1"))
    assert host.default_route(proc) == {"bond0", "eth1"}


def test_a_half_default_of_a_tunnel_is_none(proc):
    (proc / "net/route").write_text(
        ROUTE.format(default="tun0	00000000	010200C0	0003	0	0	0	00000080	0	0	0")
    )
    assert host.default_route(proc) == frozenset()


def test_a_host_that_tells_nothing_has_no_default_route(tmp_path):
    assert host.default_route(tmp_path) == frozenset()


def test_a_configured_name_wins_over_the_host_name():
    assert host.node_name("gpu17") == "gpu17"
    assert "." not in host.node_name("")


def test_the_boot_lies_in_the_past():
    assert host.booted() < host.HostClock().now().monotonic
    assert host.boot_id()
