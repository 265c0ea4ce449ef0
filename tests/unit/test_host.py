"""Who this host is, read from copies of the files in which the kernel says so."""

import pytest

from ibmon.runtime import host

ZERO = "0" * 32
FLAGS = "00000100 00000001 0 00000001"


def route(interface: str, mask: str = "00000000") -> str:
    """/proc/net/route with one route to everywhere (or to half of it) and one to a neighbour."""
    lines = [
        "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT",
        f"{interface} 00000000 010200C0 0003 0 0 0 {mask} 0 0 0",
        "eth9 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0",
    ]
    return "\n".join(line.replace(" ", "\t") for line in lines) + "\n"


def route6(interface: str) -> str:
    """/proc/net/ipv6_route with a prefix, a default route, and the unreachable one that the kernel keeps at lo."""
    return f"""fd{ZERO[2:]} 40 {ZERO} 00 {ZERO} {FLAGS} eth8
{ZERO} 00 {ZERO} 00 fe80{ZERO[4:]} {FLAGS} {interface}
{ZERO} 00 {ZERO} 00 {ZERO} {FLAGS} lo
"""


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "net").mkdir()
    return tmp_path


def test_the_default_route_is_found_in_both_families(proc):
    (proc / "net/route").write_text(route("bond0"))
    (proc / "net/ipv6_route").write_text(route6("eth1"))
    assert host.default_route(proc) == {"bond0", "eth1"}


def test_a_half_default_of_a_tunnel_is_none(proc):
    (proc / "net/route").write_text(route("tun0", mask="00000080"))
    assert host.default_route(proc) == frozenset()


def test_a_host_that_tells_nothing_has_no_default_route(tmp_path):
    assert host.default_route(tmp_path) == frozenset()


def test_a_configured_name_wins_over_the_host_name():
    assert host.node_name("gpu17") == "gpu17"
    assert "." not in host.node_name("", {})


def test_a_pod_is_called_as_its_node_is_and_not_as_its_own_host_name_says():
    assert host.node_name("", {"NODE_NAME": "gpu17.example.org"}) == "gpu17.example.org"
    assert host.node_name("gpu17", {"NODE_NAME": "gpu17.example.org"}) == "gpu17"


def test_the_boot_lies_in_the_past():
    assert host.booted() < host.HostClock().now().monotonic
    assert host.boot_id()
