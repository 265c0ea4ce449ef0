"""A reading that holds no value is no sight of a device, whatever it says of why."""

import pytest
from sysfs_trees import port_files, virtual

from ibmon.devices import Devices
from ibmon.model import Now, Reading, Tier
from ibmon.recording import Frame
from ibmon.sysfs.discover import discover

NAME = "mlx5_0"


@pytest.fixture
def known():
    devices = Devices()
    devices.add(discover(virtual(Frame(t=0, files=port_files(NAME))), NAME, 1))
    return devices


def state(device, value, errnos, at):
    columns = device.layout.tiers[Tier.STATE]
    return Reading(device.name, 1, columns, (value,) * len(columns), errnos, {}, Now(at, at), Now(at, at))


@pytest.mark.parametrize("errnos", [{}, {0: 5}])
def test_a_state_without_a_value_leaves_the_last_sight_and_counts_as_a_failed_poll(known, errnos):
    present = known.present[NAME]
    known.read(state(present.device, 4, {}, 10.0), (Tier.STATE,))
    for turn, at in enumerate((15.0, 20.0), 1):
        known.read(state(present.device, None, errnos, at), (Tier.STATE,))
        assert present.seen_state() == Now(10.0, 10.0)
        assert present.ports[1].failed_polls == turn
    [view] = known.views()
    assert view.sampled == Now(10.0, 10.0)
    assert view.sample.values[0] is None
    known.read(state(present.device, 4, {}, 25.0), (Tier.STATE,))
    assert present.ports[1].failed_polls == 0
    [view] = known.views()
    assert view.sampled == Now(25.0, 25.0)


def test_the_view_follows_the_sample_while_nothing_else_changes(known):
    present = known.present[NAME]
    for at in (5.0, 10.0, 15.0):
        known.read(state(present.device, 4, {}, at), (Tier.STATE,))
        [view] = known.views()
        assert (view.sampled, view.sample) == (Now(at, at), present.sample)
    assert known.views()[0] is view
