"""What the kernel's text means: every shape it prints, and everything else refused without a float or a crash."""

import errno
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibmon.model import Column, Level, Tier
from ibmon.sysfs import parse

GIGABIT = 125_000_000  # bytes per second
LANE = {"SDR": 25, "DDR": 50, "QDR": 100, "FDR10": 100, "FDR": 140, "EDR": 250, "HDR": 500, "NDR": 1000, "XDR": 2000}


def _kernel_rates():
    """Lanes times lane speed in tenths of Gb/s, as core/sysfs.c:rate_show prints it."""
    for word, tenths in LANE.items():
        for lanes in (1, 2, 4, 8, 12):
            total = lanes * tenths
            number = f"{total // 10}{'.5' if total % 10 else ''}"
            yield f"{number} Gb/sec ({lanes}X {word})\n", total * GIGABIT // 10, lanes, word


KERNEL_RATES = tuple(_kernel_rates())


@pytest.mark.parametrize(("line", "rate", "width", "word"), KERNEL_RATES)
def test_every_rate_that_the_kernel_can_print_is_exact(line, rate, width, word):
    assert parse.rate(line.encode()) == (rate, width, word)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("2.5 Gb/sec (1X SDR)\n", (312_500_000, 1, "SDR")),
        ("2.5 Gb/sec (1X)\n", (312_500_000, 1, None)),
        ("10 Gb/sec (4X)\n", (1_250_000_000, 4, None)),
        ("400 Gb/sec\n", (50_000_000_000, None, None)),
        ("400 Gb/sec (4X NDR)", (50_000_000_000, 4, "NDR")),
        ("1600 Gb/sec (4X GDR)\n", (200_000_000_000, 4, "GDR")),
        ("41.2 Gb/sec (4X QDR)\n", (5_150_000_000, 4, "QDR")),
        ("0 Gb/sec (4X SDR)\n", (0, 4, "SDR")),
    ],
)
def test_a_rate_keeps_an_unknown_word_and_does_without_word_or_width(line, expected):
    assert parse.rate(line.encode()) == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\n",
        "Gb/sec\n",
        "-40 Gb/sec (4X QDR)\n",
        "NaN Gb/sec (4X XYZ)\n",
        "inf Gb/sec (4X NDR)\n",
        "4e2 Gb/sec (4X NDR)\n",
        "400Gb/sec (4X NDR)\n",
        "400 Gb/sec (4X NDR) and more\n",
        "400 Gb/sec (4X NDR\n",
        "400. Gb/sec (4X NDR)\n",
        "9999999999999 Gb/sec (4X NDR)\n",
        "4: ACTIVE\n",
        "\xff\xfe\n",
    ],
)
def test_a_rate_of_any_other_shape_is_no_message(line):
    with pytest.raises(parse.ParseError) as refused:
        parse.rate(line.encode("latin-1"))
    assert refused.value.errno == errno.EBADMSG


def test_a_rate_without_lanes_has_no_width():
    assert parse.rate_value(b"400 Gb/sec\n") == 400 * GIGABIT
    with pytest.raises(parse.ParseError) as refused:
        parse.rate_width(b"400 Gb/sec\n")
    assert refused.value.errno == errno.ENODATA


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"0\n", 0),
        (b"7", 7),
        (b"65535\n", 65535),
        (b"5\n\n\n", 5),
        (b" 12 \n", 12),
        (b"007\n", 7),
        (b"18446744073709551615\n", 2**64 - 1),
        (b"9007199254740993\n", 2**53 + 1),
    ],
)
def test_a_counter_is_its_exact_number(raw, value):
    assert parse.number(raw) == value


@pytest.mark.parametrize("raw", [b"N/A (no PMA)\n", b"N/A\n", b"n/a", b"N/A (not supported)\n"])
def test_words_for_no_counter_are_no_data(raw):
    with pytest.raises(parse.ParseError) as refused:
        parse.number(raw)
    assert refused.value.errno == errno.ENODATA


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"-1\n",
        b"+1\n",
        b"1_000\n",
        b"0x10\n",
        b"1.5\n",
        b"1e3\n",
        b"12 34\n",
        b"NaN\n",
        b"18446744073709551616\n",
        b"9" * 4096,
        "٣\n".encode(),
        "²\n".encode(),
        b"\x00",
        b"4: ACTIVE\n",
    ],
)
def test_anything_else_is_no_counter(raw):
    with pytest.raises(parse.ParseError) as refused:
        parse.number(raw)
    assert refused.value.errno == errno.EBADMSG


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"0: NOP\n", 0),
        (b"1: DOWN\n", 1),
        (b"2: INIT\n", 2),
        (b"3: ARMED\n", 3),
        (b"4: ACTIVE\n", 4),
        (b"5: ACTIVE_DEFER\n", 5),
        (b"6: UNKNOWN\n", 6),
        (b"0: <unknown>\n", 0),
        (b"1: Sleep\n", 1),
        (b"4: PortConfigurationTraining\n", 4),
        (b"6: LinkErrorRecovery\n", 6),
        (b"7: Phy Test\n", 7),
        (b"8: <unknown>\n", 8),
        (b"4", 4),
        (b"4:\n", 4),
        (b"5: \xff\xfe\n", 5),
    ],
)
def test_a_state_is_its_number_whatever_the_words_say(raw, value):
    assert parse.state(raw) == value
    assert parse.physical_state(raw) == value


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b"ACTIVE\n", b": ACTIVE\n", b"-1: X\n", b"4 ACTIVE\n", b"99999999999: X\n"]
)
def test_a_state_without_a_number_is_no_message(raw):
    with pytest.raises(parse.ParseError) as refused:
        parse.state(raw)
    assert refused.value.errno == errno.EBADMSG


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"2.5 GT/s PCIe\n", 2_500_000_000),
        (b"5.0 GT/s PCIe\n", 5_000_000_000),
        (b"8.0 GT/s PCIe\n", 8_000_000_000),
        (b"16.0 GT/s PCIe\n", 16_000_000_000),
        (b"32.0 GT/s PCIe\n", 32_000_000_000),
        (b"64.0 GT/s PCIe\n", 64_000_000_000),
        (b"16 GT/s\n", 16_000_000_000),
        (b"2.5 GT/s\n", 2_500_000_000),
    ],
)
def test_a_pci_speed_is_in_transfers_per_second(raw, value):
    assert parse.pci_speed(raw) == value


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"Unknown\n", errno.ENODATA),
        (b"Unknown speed\n", errno.ENODATA),
        (b"\n", errno.EBADMSG),
        (b"fast\n", errno.EBADMSG),
    ],
)
def test_a_card_that_fell_off_the_bus_has_no_pci_speed(raw, code):
    with pytest.raises(parse.ParseError) as refused:
        parse.pci_speed(raw)
    assert refused.value.errno == code


def test_a_pci_width_is_one_that_can_be():
    assert [parse.pci_width(b"%d\n" % lanes) for lanes in (1, 16, 32)] == [1, 16, 32]


@pytest.mark.parametrize("raw", [b"63\n", b"255\n", b"0\n"])
def test_a_dead_card_or_a_virtual_function_has_no_pci_width(raw):
    with pytest.raises(parse.ParseError) as refused:
        parse.pci_width(raw)
    assert refused.value.errno == errno.ENODATA


def test_the_numa_node_minus_one_is_not_known():
    assert (parse.numa_node(b"0\n"), parse.numa_node(b"-1\n"), parse.numa_node(b"x\n")) == (0, None, None)


def test_an_empty_attribute_is_not_known():
    assert parse.text(b"\n") is None
    assert parse.text(b" MT_0000000838 \n") == "MT_0000000838"
    assert parse.text(b"a\xffb\0\n") == "a\ufffdb"


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"0a7f:bc12:45ef:d23b", "0a7f:bc12:45ef:d23b"),
        (b"0000:0000:0000:0000\n", None),
        (b"\n", None),
        (b"hello\n", None),
        (b"0A7F:BC12:45EF:D23B\n", None),
    ],
)
def test_a_guid_that_nobody_has_set_is_none(raw, value):
    assert parse.guid(raw) == value


@pytest.mark.parametrize("raw", [b"", b"..", b".", b"../../etc", b"eth0/x", b"two words", b"a" * 16])
def test_what_cannot_be_an_interface_never_becomes_a_path(raw):
    assert parse.netdev(raw) is None


def test_an_interface_is_its_name():
    assert parse.netdev(b"ens1f0np0\n") == "ens1f0np0"


@pytest.mark.parametrize(
    "decode",
    [parse.number, parse.state, parse.rate, parse.rate_value, parse.rate_width, parse.pci_speed, parse.pci_width],
)
@given(raw=st.one_of(st.binary(max_size=64), st.text(max_size=20).map(str.encode), st.from_regex(rb"\d{1,25}\n?")))
def test_any_bytes_are_a_value_or_a_refusal(decode, raw):
    try:
        outcome = decode(raw)
    except parse.ParseError as refused:
        outcome = refused
    if isinstance(outcome, parse.ParseError):
        assert outcome.errno in {errno.ENODATA, errno.EBADMSG}
        assert str(outcome)
    else:
        assert isinstance(outcome, (int, parse.Rate))


@given(st.integers(0, 2**64 - 1))
def test_every_unsigned_number_comes_back(value):
    assert parse.number(b"%d\n" % value) == value


@given(st.text(max_size=40))
def test_attributes_take_any_text(words):
    for meaning in (parse.text, parse.guid, parse.netdev, parse.numa_node):
        meaning(words.encode())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"fe80:0000:0000:0000:a088:c203:00a0:1a2b\n", 1),
        (b"0000:0000:0000:0000:0000:ffff:0a00:0001\n", 1),
        (b"0000:0000:0000:0000:0000:0000:0000:0001\n", 1),
        (b"0000:0000:0000:0000:0000:0000:0000:0000\n", 0),
        (b"", None),
        (b"\n", None),
        (b"::1\n", None),
        (b"0000:0000:0000:0000:0000:0000:0000\n", None),
        (b"0\n", None),
        (b"gggg:0000:0000:0000:0000:0000:0000:0000\n", None),
    ],
)
def test_a_gid_is_set_or_all_zero_or_not_known(raw, expected):
    assert outcome(parse.gid_is_set, raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"0xffff\n", 0xFFFF),
        (b"0x7FFF\n", 0x7FFF),
        (b"0x0000\n", 0),
        (b"0x8001", 0x8001),
        (b"", None),
        (b"65535\n", None),
        (b"0x\n", None),
        (b"0x10000\n", None),
        (b"-0x1\n", None),
    ],
)
def test_a_pkey_is_its_number_or_not_known(raw, expected):
    assert outcome(parse.pkey, raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"41125\n", 41125),
        (b"0\n", 0),
        (b"-5000\n", -5000),
        (b"", None),
        (b"N/A\n", None),
        (b"41.1\n", None),
        (b"99999999\n", None),
    ],
)
def test_a_temperature_is_in_thousandths_of_a_degree_or_not_known(raw, expected):
    assert outcome(parse.temperature, raw) == expected


def outcome(meaning, raw):
    """What a text means, None where it is refused."""
    try:
        return meaning(raw)
    except parse.ParseError:
        return None


@given(st.binary(max_size=60))
def test_no_text_makes_a_gid_a_pkey_or_a_temperature_raise_anything_else(raw):
    for meaning in (parse.gid_is_set, parse.pkey, parse.temperature):
        outcome(meaning, raw)


def test_a_column_knows_how_its_file_reads():
    columns = {
        (Level.ATTR, "state"): parse.state,
        (Level.ATTR, "rate"): parse.rate_value,
        (Level.ATTR, "width"): parse.rate_width,
        (Level.ATTR, "gid0"): parse.gid_is_set,
        (Level.ATTR, "pkey0"): parse.pkey,
        (Level.HWMON, "module0"): parse.temperature,
        (Level.HWMON, "rate"): parse.temperature,
        (Level.PCI, "current_link_speed"): parse.pci_speed,
        (Level.COUNTERS, "rate"): parse.number,
        (Level.HW, "state"): parse.number,
        (Level.NET, "carrier_changes"): parse.number,
    }
    for (level, name), decode in columns.items():
        assert parse.decoder(Column(1, level, name, Tier.SLOW)) is decode


def test_the_pattern_of_the_design_and_ours_agree_on_the_kernels_lines():
    design = re.compile(r"^(\d+(?:\.\d+)?) Gb/sec \((\d+)X(?: ([A-Z0-9]+))?\)")
    for line, _, width, word in KERNEL_RATES:
        match = design.match(line)
        assert (int(match[2]), match[3]) == (width, word)
