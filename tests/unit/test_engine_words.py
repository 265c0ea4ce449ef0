"""How loud a line of the log is: what went as it should is no warning."""

from __future__ import annotations

from core_world import CONFIG, Site, comes_up, goes_down, start

from ibmon.messages import Log
from ibmon.runtime.replay import play


class Heard(Site):
    """A host whose lines are kept with their level."""

    def _noted(self, effects):
        self.levels = [*getattr(self, "levels", []), *((e.event, e.level) for e in effects if isinstance(e, Log))]
        return super()._noted(effects)


def test_a_drain_that_is_made_and_given_back_is_no_warning():
    host = Heard(CONFIG)
    list(play(host, iter([start(), goes_down(100), comes_up(300)]), [], 1200))

    assert [line for line in host.levels if line[0] in {"drain", "release"}] == [("drain", "info"), ("release", "info")]
