"""What is kept of a device's files must never show: a reading is what one from nothing would be."""

from __future__ import annotations

import errno

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sysfs_trees import port_files, virtual

from ibmon.model import Level, Now
from ibmon.recording import Frame
from ibmon.sysfs.columns import paths
from ibmon.sysfs.contents import Contents
from ibmon.sysfs.discover import discover

PORT = "class/infiniband/mlx5_0/ports/1"
FILES = {
    **port_files("mlx5_0"),
    f"{PORT}/counters/port_xmit_data": "12\n",
    f"{PORT}/counters/link_downed": "1\n",
    f"{PORT}/hw_counters/out_of_buffer": "7\n",
}
AT = Now(1.0, 2.0)
TEXTS = """\
4: ACTIVE
1: DOWN
5: LinkUp
400 Gb/sec (4X NDR)
100 Gb/sec (2X HDR)
10 Gb/sec
0
12
18446744073709551615
18446744073709551616
N/A (no PMA)
-1
"""
CONTENTS = st.sampled_from(
    [*TEXTS.encode().splitlines(keepends=True), b"", b"\xff\n", errno.EINVAL, errno.EIO, errno.ENODATA]
)


def device_of(driver="mlx5_core"):
    tree = virtual(Frame(t=0, files=FILES))
    device = discover(tree, "mlx5_0", 1)
    return msgspec.structs.replace(device, driver=driver), paths(tree, device)


def take(contents, columns, held):
    """A reading of these columns while the files hold this, by path."""
    wanted = contents.over(columns)
    return contents.take(wanted, [held[slot] for slot in wanted.slots], AT, AT)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_run_of_readings_is_what_readings_from_nothing_are(data):
    device, places = device_of(data.draw(st.sampled_from(["mlx5_core", "ionic"])))
    everything = range(len(device.layout.columns))
    kept, held = Contents(device, places), dict.fromkeys(everything, b"0\n")
    for _ in range(data.draw(st.integers(1, 8))):
        for slot in data.draw(st.lists(st.sampled_from(everything), max_size=4)):
            held[slot] = data.draw(CONTENTS)
        columns = tuple(data.draw(st.lists(st.sampled_from(everything), unique=True)))
        assert take(kept, columns, held) == take(Contents(device, places), columns, held)


def test_only_what_differs_is_parsed():
    device, places = device_of()
    contents, parsed = Contents(device, places), []
    everything = tuple(range(len(device.layout.columns)))
    contents._decoders = [
        lambda raw, decode=decode, column=column: parsed.append(column.name) or decode(raw)
        for decode, column in zip(contents._decoders, device.layout.columns, strict=True)
    ]
    held = dict.fromkeys(everything, b"5\n") | {device.layout.column(1, Level.ATTR, "rate"): b"400 Gb/sec (4X NDR)\n"}
    take(contents, everything, held)
    assert sorted(parsed) == sorted(column.name for column in device.layout.columns)
    parsed.clear()
    take(contents, everything, held)
    assert parsed == []
    held[device.layout.column(1, Level.COUNTERS, "link_downed")] = b"6\n"
    take(contents, everything, held)
    assert parsed == ["link_downed"]


def test_what_one_column_of_a_file_has_seen_the_other_knows():
    device, places = device_of()
    rate, width = (device.layout.column(1, Level.ATTR, name) for name in ("rate", "width"))
    contents = Contents(device, places)
    for text, lanes in ((b"400 Gb/sec (4X NDR)\n", 4), (b"200 Gb/sec (2X NDR)\n", 2)):
        take(contents, (rate,), {rate: text})
        assert take(contents, (width,), {rate: text}).values == (lanes,)


@pytest.mark.parametrize("failure", [errno.EINVAL, b"N/A (no PMA)\n"])
def test_a_failure_ends_with_the_next_good_read_of_the_same_content(failure):
    device, places = device_of()
    column = device.layout.column(1, Level.COUNTERS, "link_downed")
    contents = Contents(device, places)
    readings = [take(contents, (column,), {column: held}) for held in (b"3\n", failure, b"3\n")]
    assert [reading.values for reading in readings] == [(3,), (None,), (3,)]
    assert [bool(reading.errnos) for reading in readings] == [False, True, False]
