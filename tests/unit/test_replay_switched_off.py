"""Rules that are switched off while something is open, and files that go away meanwhile: nothing is left running."""

import pytest
from core_world import CONFIG, INIT, Site, changes, port, start

from ibmon.configfile import loads
from ibmon.messages import Reloaded
from ibmon.recording import Frame
from ibmon.runtime.replay import play

GONE = Frame(t=100, remove=("class/infiniband/mlx5_0", "class/infiniband/mlx5_1"))
WAITING = Frame(t=100, files={**port("mlx5_0", INIT), **port("mlx5_1", INIT)})
UNREADABLE = Frame(t=100, errnos={"class/infiniband": "EIO"})


class Reloading(Site):
    """A host whose configuration is another one from 900 s on."""

    later = CONFIG

    def apply(self, frame):
        super().apply(frame)
        if frame.t == 900:
            self.config = loads(self.later).config
            self._carry_out(self.engine.step(Reloaded(self.config), self.now()))


@pytest.mark.parametrize(
    ("fault", "rule"), [(GONE, "all-devices-missing"), (WAITING, "port-init"), (UNREADABLE, "monitor-blind")]
)
@pytest.mark.parametrize("restart", [False, True])
def test_a_finding_of_the_node_ends_when_its_rule_is_switched_off(fault, rule, restart):
    site = Reloading()
    site.later = f"{CONFIG}[rules.{rule}]\nenabled = false\n"
    frames = [start(), fault, Frame(t=900), Frame(t=950, restart=restart)]
    told = {t: row for t, row in play(site, iter(frames), (800, 1000), 1000) if t in (800, 1000)}

    assert [f["rule"] for f in told[800]["findings"]] == [rule]
    assert told[1000]["findings"] == []


def test_a_counter_that_goes_away_while_a_grace_lasts_keeps_nothing_turning():
    config = CONFIG.replace('boot_grace = "0s"', 'boot_grace = "10m"')
    full = Frame(t=0, files={**start().files, **port("mlx5_0", local_link_integrity_errors=15)})
    told = changes([full, Frame(t=200, remove=("class/infiniband/mlx5_0",))], 700, config, uptime=0.0)

    assert told[-1][0] <= 700


@pytest.mark.parametrize("t", [1956.0, 1956.996])
def test_a_device_that_is_looked_at_and_then_read_while_it_hangs_is_overdue_when_it_was_told_to_be(t):
    hotplug = Frame(t=t + 2, remove=("class/infiniband/mlx5_1",))
    told = changes([start(), Frame(t=t, block=("class/infiniband/mlx5_0",)), hotplug], 3000)

    assert told[-1][1]["ports"]["mlx5_0/1"] == "unknown"
