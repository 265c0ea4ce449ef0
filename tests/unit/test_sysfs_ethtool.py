"""Ethtool statistics: what the kernel writes into the buffers becomes names and numbers, and a real ioctl answers."""

import errno
import os
import struct

import pytest

from ibmon.sysfs.ethtool import MAX_STATISTICS, Ethtool


class Driver:
    """What net/ethtool/ioctl.c does with the three commands, for a driver with these statistics."""

    def __init__(self, **values):
        self.given, self.calls, self.present = values, [], True

    def __call__(self, netdev, buffer):
        (command,) = struct.unpack_from("=I", buffer, 0)
        self.calls.append(command)
        if command == 0x37:
            (asked,) = struct.unpack_from("=Q", buffer, 8)
            assert asked == 1 << 1
            struct.pack_into("=Q", buffer, 8, asked if self.present else 0)
            struct.pack_into("=I", buffer, 16, len(self.given))
        elif command == 0x1B:
            assert struct.unpack_from("=I", buffer, 4) == (1,)
            struct.pack_into("=I", buffer, 8, len(self.given))
            for at, name in enumerate(self.given):
                struct.pack_into("32s", buffer, 12 + 32 * at, name.encode())
        elif command == 0x1D:
            struct.pack_into(f"=I{len(self.given)}Q", buffer, 4, len(self.given), *self.given.values())
        else:
            raise AssertionError(hex(command))


def test_names_and_values_belong_together():
    driver = Driver(link_down_events_phy=3, rx_prio0_pause=2**64 - 1, a_name_of_thirty_one_characters=0)
    statistics = Ethtool(driver)
    assert statistics.names("eth2") == tuple(driver.given)
    assert statistics.values("eth2") == (3, 2**64 - 1, 0)


def test_names_are_asked_for_once():
    driver = Driver(a=1)
    statistics = Ethtool(driver)
    for _ in range(3):
        statistics.names("eth2")
    assert driver.calls.count(0x1B) == 1


def test_names_are_asked_for_again_when_their_number_changed():
    driver = Driver(a=1)
    statistics = Ethtool(driver)
    assert statistics.names("eth2") == ("a",)
    driver.given["b"] = 2
    assert statistics.names("eth2") == ("a", "b")
    assert statistics.values("eth2") == (1, 2)


def test_more_values_than_there_was_room_for_do_no_harm():
    """mlx5 writes as many as its channels have when it writes; the buffer holds thousands more than were asked for."""
    driver = Driver(a=1)
    counted = driver.__call__

    def growing(netdev, buffer):
        counted(netdev, buffer)
        if driver.calls[-1] == 0x37:
            driver.given.update({f"ch{i}": i for i in range(2000)})

    assert Ethtool(growing).values("eth2") == (1,)


@pytest.mark.parametrize("count", [0, MAX_STATISTICS + 1])
def test_a_driver_without_statistics_or_with_nonsense_has_none(count):
    def answer(netdev, buffer):
        struct.pack_into("=QI", buffer, 8, 2, count)

    with pytest.raises(OSError, match="eth2") as refused:
        Ethtool(answer).names("eth2")
    assert refused.value.errno == errno.EOPNOTSUPP


def test_a_set_that_the_kernel_does_not_have_is_none():
    driver = Driver(a=1)
    driver.present = False
    with pytest.raises(OSError, match=os.strerror(errno.EOPNOTSUPP)):
        Ethtool(driver).names("eth2")


@pytest.mark.parametrize("netdev", ["no-such-netdev", "a-name-that-is-longer-than-the-kernel-allows"])
def test_the_real_ioctl_of_an_interface_that_is_not_there_is_enodev(netdev):
    with pytest.raises(OSError, match=r".") as refused:
        Ethtool().names(netdev)
    assert refused.value.errno == errno.ENODEV


def test_the_real_ioctl_of_the_loopback_has_no_statistics():
    with pytest.raises(OSError, match=r".") as refused:
        Ethtool().names("lo")
    assert refused.value.errno in {errno.EOPNOTSUPP, errno.ENODEV}
