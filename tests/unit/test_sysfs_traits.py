"""What a column is: where it sticks or wraps, whether it counts, and whether its rise is an error."""

import pytest
from sysfs_trees import port_files, virtual

from ibmon.model import Column, Level, Tier
from ibmon.recording import Frame
from ibmon.sysfs.discover import discover
from ibmon.sysfs.traits import rdma_driver, with_traits


def trait(level, name, *, device="mlx5_0", driver="mlx5_core", beside=()):
    columns = [Column(1, level, n, Tier.SLOW) for n in (name, *beside)]
    return with_traits(columns, device, driver)[0]


@pytest.mark.parametrize(
    ("name", "maximum"),
    [("local_link_integrity_errors", 15), ("link_downed", 255), ("symbol_error", 65535), ("port_xmit_wait", 2**32 - 1)],
)
def test_a_narrow_counter_sticks_at_its_maximum(name, maximum):
    assert trait(Level.COUNTERS, name)[4:6] == (maximum, None)


def test_bnxt_wraps_instead():
    for device, driver in (("bnxt_re0", None), ("rocep1s0", "bnxt_en")):
        assert trait(Level.COUNTERS, "port_rcv_errors", device=device, driver=driver)[4:6] == (None, 65536)


def test_data_is_wide_only_beside_the_extended_set():
    assert trait(Level.COUNTERS, "port_xmit_data", beside=("unicast_xmit_packets",)).maximum is None
    assert trait(Level.COUNTERS, "port_xmit_data").maximum == 2**32 - 1


@pytest.mark.parametrize(
    ("level", "name", "counts", "error"),
    [
        (Level.COUNTERS, "symbol_error", True, True),
        (Level.COUNTERS, "link_downed", True, True),
        (Level.COUNTERS, "port_xmit_data", True, False),
        (Level.COUNTERS, "port_xmit_wait", True, False),
        (Level.HW, "local_ack_timeout_err", True, True),
        (Level.HW, "lifespan", False, False),
        (Level.HW, "nobody_knows_this", True, False),
        (Level.NET, "carrier_changes", True, True),
        (Level.PHY, "rx_symbol_err_phy", True, True),
        (Level.PHY, "rx_corrected_bits_phy", True, False),
        (Level.ATTR, "state", False, False),
        (Level.PCI, "current_link_width", False, False),
    ],
)
def test_counters_count_and_only_faults_are_errors(level, name, counts, error):
    column = trait(level, name)
    assert (column.counts, column.error) == (counts, error)


@pytest.mark.parametrize(
    ("device", "driver", "expected"),
    [
        ("bnxt_re0", None, "bnxt_re"),
        ("hfi1_0", None, "hfi1"),
        ("mlx5_12", None, "mlx5"),
        ("rocep65s0", "bnxt_en", "bnxt_en"),
        ("weird", None, None),
    ],
)
def test_the_driver_is_the_links_or_the_default_names(device, driver, expected):
    assert rdma_driver(device, driver) == expected


def test_discovery_gives_columns_their_traits():
    device = discover(virtual(Frame(t=0, files=port_files("mlx5_0", counters__link_downed="1\n"))), "mlx5_0", 1)
    column = device.layout.columns[device.layout.column(1, Level.COUNTERS, "link_downed")]
    assert column == Column(1, Level.COUNTERS, "link_downed", Tier.COUNTER, 255, None, True, True)
