"""How much people hear: one fault, one message, whatever lasts, flaps, restarts or is away; and rules that only look.

Each story is played through the engine in virtual time. How often a firing alert is repeated to people is
Alertmanager's own matter (`repeat_interval`); ibmon tells it changes, and that an alert goes on.
"""

from __future__ import annotations

import functools

import msgspec
import pytest
from core_world import CONFIG, INIT, Site, comes_up, goes_down, node, path, port, start

from ibmon.alert import message
from ibmon.messages import Alerts
from ibmon.recording import Frame, SchedulerAct
from ibmon.runtime.replay import play
from ibmon.store import Message, Store

HOUR, DAY = 3600.0, 86400.0
SLOW = '[sampling]\nstate_interval = "10s"\ncounter_interval = "60s"\nslow_interval = "60s"\n'
SELDOM = CONFIG + SLOW.replace('"10s"', '"60s"')
EIGHT = tuple(f"mlx5_{n}" for n in range(8))
AT_TWO = 1_893_463_200.0  # 2030-01-01T02:00:00Z
RECOVER = 600


class Told(Site):
    """A site that keeps every set of alerts that was told to Alertmanager, with its time."""

    def __init__(self, config=CONFIG + SLOW, **header):
        self.sets = []
        super().__init__(config, **header)

    def _carry_out(self, effects):
        self.sets += [
            (self.time, {(f.rule, f.subject, f.severity.value) for f in effect.firing})
            for effect in effects
            if isinstance(effect, Alerts)
        ]
        return super()._carry_out(effects)

    @property
    def changes(self):
        """What was told to Alertmanager, each set only where it is another one than before."""
        found = [({} if n == 0 else self.sets[n - 1][1], told) for n, (_, told) in enumerate(self.sets)]
        return [told for before, told in found if told != before and (told or before)]

    def messages(self, topic):
        return [(t, send.subject, send.body) for t, send in self.sent if send.topic == topic]


def played(frames, until, config=CONFIG + SLOW, **header):
    site = Told(config, **header)
    return site, list(play(site, iter(sorted(frames, key=lambda frame: frame.t)), [until], until))[-1][1]


# ------------------------------------------------------------------------------------------------- one fault


@functools.cache
def a_day_down():
    return played([start(), goes_down(600), comes_up(600 + DAY)], 600 + DAY + 2 * RECOVER, SELDOM)


def test_a_port_that_is_down_for_a_day_is_a_warning_a_critical_alert_and_one_end():
    site, last = a_day_down()

    assert site.changes == [{("port-down", "mlx5_0/1", "warning")}, {("port-down", "mlx5_0/1", "critical")}, set()]
    assert [body["state"] for _, _, body in site.messages("finding")] == ["open", "open", "open", "cleared"]
    assert [body["fitness"] for _, _, body in site.messages("fitness")] == ["fit", "watch", "unfit", "fit"]
    assert last["node"] == "fit"


def test_it_is_ended_only_after_the_recovery():
    site, _ = played([start(), goes_down(600), comes_up(1200)], 1200 + 2 * RECOVER)
    ended = [t for t, told in site.sets if not told and t > 600]

    assert len(ended) == 1
    assert ended[0] >= 1200 + RECOVER
    assert min(t for t, _, body in site.messages("finding") if body["state"] == "cleared") >= 1200 + RECOVER


def test_the_log_has_a_line_for_each_change_and_none_for_a_poll():
    site, _ = a_day_down()

    assert 4 <= len(site.logs) <= 20
    assert len({(t, event, str(fields)) for t, event, fields in site.logs}) == len(site.logs)


@pytest.mark.parametrize(
    ("scheduler", "outcome"),
    [
        (SchedulerAct(do="drain", reason="bad DIMM"), {"outcome": "blocked", "code": "foreign_drain"}),
        (SchedulerAct(do="down"), {"outcome": "failed", "code": "scheduler_unreachable"}),
    ],
)
def test_what_a_scheduler_refuses_for_a_day_is_one_line(scheduler, outcome):
    site, _ = played([start(), Frame(t=300, scheduler=scheduler), goes_down(600)], DAY, SELDOM)

    [(_, fields)] = site.told("drain")
    assert outcome.items() <= fields.items()
    assert site.scheduler.calls["read_node"] > 100


def test_a_port_that_bounces_every_twenty_seconds_for_two_hours_is_an_alert_about_bouncing_and_no_row_of_pairs():
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", link_downed=0)})
    bounces = [
        frame
        for n in range(360)
        for frame in (
            Frame(t=600 + 20 * n, files=port("mlx5_0", "1: DOWN\n", link_downed=n + 1)),
            Frame(t=610 + 20 * n, files=port("mlx5_0", link_downed=n + 1)),
        )
    ]
    site, _ = played([first, *bounces], 600 + 360 * 20)

    told = {rule for _, alerts in site.sets for rule, *_ in alerts}
    assert told
    assert told <= {"link-flap", "flap-storm"}
    assert all(told for told in site.changes)  # begun, and never ended and begun anew
    assert len(site.changes) <= 4
    known = min(t for t, told in site.sets if told)
    assert known < 700
    assert [body["fitness"] for *_, body in site.messages("fitness")] in (["fit", "unfit"], ["fit", "watch", "unfit"])
    assert len(site.messages("finding")) <= 6


def test_a_receiver_hears_of_no_watch_over_what_ends_before_it_has_lasted_and_of_one_that_has():
    blinks = [goes_down(600), comes_up(620), goes_down(5000, "mlx5_1"), comes_up(5040, "mlx5_1")]
    site, _ = played([start(), *blinks], 5040 + 2 * RECOVER)

    told = [(t, body["fitness"], body["previous"]) for t, _, body in site.messages("fitness")]
    assert [(fitness, previous) for _, fitness, previous in told] == [
        ("fit", "unknown"),
        ("watch", "fit"),
        ("fit", "watch"),
    ]
    assert 5030 <= told[1][0] <= 5040
    assert [fields["fitness"] for _, fields in site.told("fitness")] == ["fit", "watch", "fit", "watch", "fit"]


@pytest.mark.parametrize("killed", [605, 615, 625, 5010, 5035, 5300])
def test_a_kill_makes_no_difference_to_what_receivers_hear_of_it(killed):
    blinks = [goes_down(600), comes_up(620), goes_down(5000, "mlx5_1"), comes_up(5040, "mlx5_1")]
    site, _ = played([start(), *blinks, Frame(t=killed, restart=True)], 5040 + 2 * RECOVER)

    assert [body["fitness"] for *_, body in site.messages("fitness")] == ["fit", "watch", "fit"]


def test_a_node_that_begins_with_a_bad_port_is_never_called_fit():
    site, _ = played([start(), goes_down(1)], 900)

    assert "fit" not in [body["fitness"] for t, _, body in site.messages("fitness") if t > 1]


def test_eight_ports_that_fail_in_one_second_are_one_message_about_the_node_that_lists_them():
    config = CONFIG.replace("[0-1]", "[0-7]") + SLOW
    site, last = played([start(0, *EIGHT), *(goes_down(600, name) for name in EIGHT)], 900, config)

    unfit = [body for _, _, body in site.messages("fitness") if body["fitness"] == "unfit"]
    assert len(unfit) == 1
    assert {finding.device for finding in unfit[0]["findings"]} == set(EIGHT)
    assert len(site.changes) == 2  # all eight at once: a warning, and critical
    assert len(last["alerts"]) == 8


def test_a_daemon_that_restarts_fifty_times_during_a_fault_tells_nothing_twice():
    crashes = [Frame(t=900 + 60 * n, restart=True) for n in range(50)]
    frames = [start(), goes_down(600), comes_up(5000)]
    calm, _ = played(frames, 5000 + 2 * RECOVER)
    site, last = played([*frames, *crashes], 5000 + 2 * RECOVER)

    assert site.changes == calm.changes
    assert [body for *_, body in site.messages("fitness")] == [body for *_, body in calm.messages("fitness")]
    assert len(site.messages("finding")) == len(calm.messages("finding"))
    assert (last["node"], last["calls"]) == ("fit", {"drain": 1, "release": 1})


# ------------------------------------------------------------------------------------------- rules that only look

PER_RULE = """
[rules.port-down]
action = "drain"
[rules.port-init]
action = "alert"
hold = "60s"
[rules.link-integrity]
action = "observe"
"""


@pytest.mark.parametrize(
    ("trouble", "told", "drained"),
    [
        (goes_down(600).files, {("port-down", "critical")}, True),
        (port("mlx5_0", INIT), {("port-init", "critical")}, False),
        ({path("mlx5_0", "counters/local_link_integrity_errors"): "15\n"}, set(), False),
    ],
    ids=["drain", "alert", "observe"],
)
def test_a_rule_goes_as_far_as_its_action_and_no_further(trouble, told, drained):
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", local_link_integrity_errors=0)})
    site, last = played([first, Frame(t=600, files=trouble)], 1800, CONFIG + SLOW + PER_RULE)

    assert last["findings"]  # whatever it may do, it is seen
    assert {(alert["rule"], alert["severity"]) for alert in last["alerts"]} == told
    assert last["drained"] is drained
    assert bool(site.scheduler.calls["drain"]) is drained


@pytest.mark.parametrize("mode", ["observe", "alert"])
def test_a_mode_that_does_not_drain_counts_what_it_would_have_done(mode):
    site, last = played([start(), goes_down(600)], 1800, CONFIG.replace('"drain"', f'"{mode}"') + SLOW)

    assert site.engine.snapshot(site.now()).drain.would == 1
    assert not site.scheduler.calls
    assert bool(last["alerts"]) is (mode == "alert")
    assert bool(site.sent) is (mode == "alert")


# --------------------------------------------------------------------------------------- a receiver that is away


class Mailbox:
    """The outbox of two receivers of which A is away until it is asked."""

    def __init__(self, directory):
        self.store = Store(directory, node="node0001")
        self.heard = {"A": [], "B": []}

    def put(self, topic, subject, body, wall):
        text = message.encode(topic, "node0001", body, wall)
        for target in ("A", "B"):
            self.store.outbox.put(Message(target, f"{topic} {subject}", topic, f"msg_{wall}", text, wall))
        self.deliver("B")

    def deliver(self, target):
        while (waiting := self.store.outbox.take(target)) is not None:
            self.heard[target].append(msgspec.json.decode(waiting.body))
            self.store.outbox.done(waiting)


def test_a_receiver_that_was_away_for_six_hours_hears_what_holds_with_the_times_at_which_it_happened(tmp_path):
    """02:10 x fails, 02:30 it is well again, 03:00 y fails and stays, 08:00 A is back; B was there all the time."""
    x, y = "mlx5_0/1", "mlx5_1/1"
    frames = [start(), goes_down(600), comes_up(1800), goes_down(HOUR, "mlx5_1")]
    site, last = played(frames, 6 * HOUR, wall=AT_TWO)
    box = Mailbox(tmp_path)
    most = 0
    for t, send in site.sent:
        box.put(send.topic, send.subject, send.body, AT_TWO + t)
        most = max(most, box.store.outbox.pending("A"))
    assert most == len({(send.topic, send.subject) for _, send in site.sent}) <= 5
    box.deliver("A")
    box.store.close()

    def of(target, name):
        return [m for m in box.heard[target] if m["type"] == "ibmon.finding" and m["data"]["finding"]["port"] == name]

    assert [m["data"]["state"] for m in of("B", x)] == ["open", "open", "open", "cleared"]
    assert [m["data"]["state"] for m in of("B", y)] == ["open", "open"]
    assert [m["data"]["state"] for m in of("A", x)] == ["cleared"]
    [late] = of("A", y)
    assert late["data"]["state"] == "open"
    assert late["data"]["finding"]["onset"].startswith("2030-01-01T03:00:")
    assert late["timestamp"].startswith("2030-01-01T03:01:")
    assert [m["data"]["fitness"] for m in box.heard["A"] if m["type"] == "ibmon.fitness"] == ["unfit"]
    assert {alert["port"] for alert in last["alerts"] if alert["rule"] == "port-down"} == {y}
