"""The running controller: reports over a real socket in, drains at a simulated scheduler out, a ledger that lasts."""

import json
import threading
import urllib.request
from types import SimpleNamespace

import pytest
from controller_world import ID, NODES, SECONDS, WHY, World

from ibmon.configfile import ConfigError
from ibmon.controller.daemon import Controller
from ibmon.controller.keeping import LedgerConflict
from ibmon.controller.ledger import Ledger
from ibmon.controller.roster import MISSING
from ibmon.controller.values import AlertSeen, Ask
from ibmon.drain.controller import NotLeaderError
from ibmon.drain.reconcile import LATE
from ibmon.model import Mode, NodeFitness
from ibmon.ports import StoreError
from ibmon.recording import SchedulerAct
from ibmon.report import INTERVAL, Owned, Wish


def private(path, text):
    path.touch(mode=0o600)
    path.write_text(text)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.stop()


def test_a_node_that_reports_itself_unfit_is_drained_in_its_own_words_and_given_back_when_it_asks(world):
    world.start()
    world.open_quorum()
    world.unfit(NODES[0])
    world.until(lambda: world.drained(NODES[0]))
    assert world.cluster.view(NODES[0]).reason == WHY
    assert world.unfit(NODES[0], held=True).decision == "drained"

    world.report(NODES[0], intent=Wish(id=ID), owned=Owned(ID, WHY, held=True))
    world.until(lambda: not world.drained(NODES[0]))
    assert world.report(NODES[0], intent=Wish(id=ID), owned=Owned(ID, WHY, held=True)).decision == "released"


def test_nothing_is_drained_before_the_quorum(world):
    world.start()
    reply = world.unfit(NODES[0])
    assert reply.decision != "drained"
    world.settled()
    assert world.cluster.count_drained("") == 0


def test_a_stop_outlives_a_kill_and_is_in_every_reply(world):
    world.start()
    world.open_quorum()
    desk = world.running.desk
    told = world.running.server.call(lambda: desk.ask(Ask(action="stop", user="alice", reason="x"), world.clock.now()))
    assert told.result().done
    world.running.server.call(world.running._save).result().result()
    world.stop()
    world.start()
    world.open_quorum()
    assert world.unfit(NODES[0]).stop
    world.settled()
    assert not world.drained(NODES[0])


def test_a_stop_file_stops_it_too(world):
    world.start()
    world.open_quorum()
    (world.directory / "STOP").touch()
    world.running.server.call(lambda: world.running._beat(True)).result()
    reply = world.unfit(NODES[0])
    assert reply.stop
    with urllib.request.urlopen(f"{world.running.server.url}/api/v1/fleet", timeout=SECONDS) as answer:
        assert json.load(answer)["stop"]["reason"] == f"{world.directory}/STOP is there"
    world.settled()
    assert not world.drained(NODES[0])
    (world.directory / "STOP").unlink()
    world.running.server.call(lambda: world.running._beat(False)).result()
    world.unfit(NODES[0])
    world.until(lambda: world.drained(NODES[0]))


def test_what_was_drained_before_a_restart_is_given_back_after_it(world):
    world.start()
    world.open_quorum()
    world.unfit(NODES[0])
    world.until(lambda: world.drained(NODES[0]))
    world.stop()
    world.start()
    world.fresh()
    world.report(NODES[0], intent=Wish(id=ID), owned=Owned(ID, WHY, held=True))
    world.until(lambda: not world.drained(NODES[0]))


def test_while_the_ledger_cannot_be_saved_nothing_new_is_drained_and_nodes_are_given_back(world, monkeypatch):
    controller = world.start()
    world.open_quorum()
    world.unfit(NODES[0])
    world.until(lambda: world.drained(NODES[0]))

    def fail(_):
        raise StoreError("No space left on device")

    monkeypatch.setattr(controller._keeper._ledger, "save", fail)
    with pytest.raises(StoreError):
        controller.server.call(controller._save).result().result()
    world.until(lambda: controller._saving.trouble)
    world.unfit(NODES[1])
    world.report(NODES[0], intent=Wish(id=ID), owned=Owned(ID, WHY, held=True))
    world.until(lambda: not world.drained(NODES[0]))
    world.settled()
    assert not world.drained(NODES[1])


def test_a_ledger_that_cannot_be_read_is_set_aside_and_a_stop_is_in_force(world, caplog):
    world.start()
    world.running._keeper.save(b"{broken").result()
    world.stop()
    world.start()
    assert [path.read_bytes() for path in (world.directory / "state").glob("ledger.aside-*")] == [b"{broken"]
    assert "wait for a person" in caplog.text
    assert world.report(NODES[0]).stop  # one may have stood there


def test_a_foreign_drain_is_left_alone_and_a_wish_that_ends_under_it_is_done_with_at_once(world):
    world.cluster.act(NODES[0], SchedulerAct(by="admin", do="drain", reason="bad DIMM"))
    world.start()
    world.open_quorum()
    world.unfit(NODES[0])
    world.until(lambda: world.unfit(NODES[0]).code == "foreign_drain")
    # Nobody has asked for it, so it cannot arrive late: the node's record is good for nothing.
    back = {"intent": Wish(id=ID), "owned": Owned(ID, WHY, asked=world.clock.now().wall)}
    world.until(lambda: world.report(NODES[0], **back).decision == "released")
    assert world.cluster.view(NODES[0]).reason == "bad DIMM"


def test_a_record_of_a_drain_that_an_earlier_process_may_have_asked_for_is_kept_until_it_cannot_come_any_more(world):
    world.start()
    back = {"intent": Wish(id=ID), "owned": Owned(ID, WHY, asked=world.clock.now().wall)}
    for _ in range(int(LATE / INTERVAL) - 1):
        assert world.report(NODES[0], **back).decision == "none"
        world.clock.ahead += INTERVAL
        world.fresh()
    world.clock.ahead += 2 * INTERVAL
    world.fresh()
    world.until(lambda: world.report(NODES[0], **back).decision == "released")


def test_a_second_controller_on_the_same_directory_does_not_start(world):
    world.start()
    other = Controller(world.config(), clock=world.clock)
    with pytest.raises(ConfigError, match=r"another controller runs on .*stop it first"):
        other.start()


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda d: (d / "master.key").unlink(), r"master\.key cannot be read: No such file"),
        (lambda d: (d / "master.key").write_text("secret-stuff"), r"master\.key, line 1: not a secret"),
        (lambda d: private(d / "tokens", "alice operate short"), r"tokens, line 1: a token has 16 characters"),
    ],
)
def test_a_secret_that_is_missing_or_wrong_stops_the_start_with_one_line_that_does_not_hold_it(world, spoil, line):
    spoil(world.directory)
    more = f'tokens_file = "{world.directory}/tokens"\n' if (world.directory / "tokens").exists() else ""
    with pytest.raises(ConfigError, match=line) as error:
        Controller(world.config(more)).start()
    assert "secret-stuff" not in str(error.value)
    assert "short" not in str(error.value)


def test_an_instance_that_does_not_lead_says_so(world):
    controller = world.start()
    controller._leader = SimpleNamespace(is_leader=lambda: False, term=0, close=lambda _: None)
    with pytest.raises(NotLeaderError):
        world.report(NODES[0])
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{controller.server.url}/readyz", timeout=SECONDS)
    controller.server.call(lambda: controller._beat(False)).result()
    assert not controller.leads()


def test_an_instance_whose_ledger_another_one_wrote_begins_anew_with_that_one(world, monkeypatch):
    controller = world.start()
    world.open_quorum()
    first, place = controller.desk, controller._keeper._ledger
    save = place.save

    def conflict(_):
        monkeypatch.setattr(place, "save", save)
        raise LedgerConflict("another instance has written it")

    monkeypatch.setattr(place, "save", conflict)
    with pytest.raises(LedgerConflict):
        controller.server.call(controller._save).result().result()
    world.until(lambda: controller.desk is not first and controller.leads())
    world.unfit(NODES[0])
    world.settled()
    assert not world.drained(NODES[0])  # a new quorum
    assert not controller._saving.trouble  # the ledger could be saved when it began to lead


def test_an_instance_that_begins_to_lead_again_waits_for_a_new_quorum(world):
    controller = world.start()
    world.open_quorum()
    controller._leader = SimpleNamespace(is_leader=lambda: True, term=1, close=lambda _: None)
    controller.server.call(lambda: controller._beat(False)).result()
    world.until(controller.leads)
    world.fresh()
    world.unfit(NODES[0])
    world.settled()
    assert not world.drained(NODES[0])
    world.open_quorum()
    world.unfit(NODES[0])
    world.until(lambda: world.drained(NODES[0]))


class SlowPlace:
    """A place for the ledger that answers when it is let."""

    def __init__(self, place):
        self.place, self.loads, self.saved, self.free = place, 0, [], threading.Event()

    def load(self):
        self.loads += 1
        assert self.free.wait(3 * SECONDS)
        return self.place.load()

    def save(self, data):
        assert self.free.wait(3 * SECONDS)
        self.saved.append(data)
        self.place.save(data)


@pytest.fixture
def slow(world):
    """A controller whose ledger hangs from now on."""
    controller = world.start()
    world.open_quorum()
    place = controller._keeper._ledger = SlowPlace(controller._keeper._ledger)
    yield place
    place.free.set()


def test_while_the_ledger_hangs_reports_are_answered_and_only_the_newest_state_waits(world, slow):
    controller = world.running
    for number in range(200):
        ask = Ask(action="mode", user="alice", nodes=(NODES[number % 100],), mode=Mode.DRAIN)
        controller.server.call(lambda ask=ask: controller.desk.ask(ask, world.clock.now())).result()
        controller.server.call(controller._save).result()
    assert world.report(NODES[0]).mode is Mode.DRAIN
    slow.free.set()
    controller.server.call(controller._save).result().result()
    assert len(slow.saved) <= 3
    assert len(Ledger.read(slow.saved[-1]).waves) == 100


def test_an_instance_that_waits_for_its_ledger_answers_at_once_that_it_does_not_lead(world, slow):
    controller = world.running
    controller._leader = SimpleNamespace(is_leader=lambda: True, term=1, close=lambda _: None)
    controller.server.call(lambda: controller._beat(False)).result(SECONDS)
    with pytest.raises(NotLeaderError):
        world.report(NODES[0])
    assert urllib.request.urlopen(f"{controller.server.url}/healthz", timeout=SECONDS).status == 200
    controller.server.call(lambda: controller._beat(False)).result(SECONDS)  # and does not begin once more
    slow.free.set()
    world.until(controller.leads)
    assert slow.loads == 1
    assert slow.saved


def test_a_drain_for_an_alert_goes_out_after_its_record_is_durable(world):
    controller = world.start('drain_on = ["IbPortDown"]\n')
    world.open_quorum()
    place, entries = controller._keeper._ledger, []
    drain = world.cluster.drain

    def look_first(node, reason):
        entries.append(Ledger.read(place.load()).alerts[node])
        drain(node, reason)

    world.cluster.drain = look_first
    seen = AlertSeen("IbPortDown", NODES[9], True, "f1", world.clock.now().wall, "port 1 is down")
    controller.server.call(lambda: controller.desk.alert(seen, world.clock.now())).result()
    world.later(15.0)  # of its siblings nothing is heard
    world.until(lambda: world.drained(NODES[9]))
    assert [entry.asked for entry in entries] == [world.clock.now().wall]


def test_a_silent_node_is_not_called_healthy_for_ever(world):
    controller = world.start()
    told = {}
    controller._conditions = SimpleNamespace(
        show=lambda node, fitness, _: told.update({node: fitness}), close=lambda _: None, forget=lambda: None
    )
    world.report(NODES[0])
    assert told == {NODES[0]: NodeFitness.FIT}
    world.later(MISSING)
    world.until(lambda: told[NODES[0]] is NodeFitness.UNKNOWN)


def test_a_view_that_cannot_be_taken_in_is_told_and_the_next_one_is_taken(world, caplog, monkeypatch):
    controller = world.start()
    world.fresh()

    def fail(_, __):
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(controller.desk, "scheduler", fail)
    world.later(10.0)
    world.until(lambda: "could not be taken in" in caplog.text)
    monkeypatch.undo()
    world.later(10.0)
    world.fresh()
