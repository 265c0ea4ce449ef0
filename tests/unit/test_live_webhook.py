"""A running daemon and its webhooks: who is told what, once, whatever happens to receiver and daemon meanwhile."""

from __future__ import annotations

import base64
import re
import signal
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from livenode import DECLARED, FAST, LiveNode, always, until
from standardwebhooks import Webhook

SECRET = "whsec_" + base64.b64encode(b"a secret of the loopback, 32 byte").decode()
ALERT = '[action]\nmode = "{mode}"\nboot_grace = "0s"\n'
HOOK = '[[webhook]]\nurl = "{url}"\nsecret_file = "{secret}"\nevents = ["fitness"]\n'
RULE = '[rules.port-down]\nalert_hold = "100ms"\nhold = "{hold}"\nrecover = "{recover}"\n'


class Receiver:
    """Takes signed messages and verifies them with the standard's own library."""

    def __init__(self, port: int = 0) -> None:
        self.messages: list[dict] = []
        self.ids: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.messages.append(Webhook(SECRET).verify(body, dict(self.headers)))
                outer.ids.append(self.headers["webhook-id"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def told(self) -> list[str]:
        """The fitnesses in the order in which they arrived."""
        return [message["data"]["fitness"] for message in self.messages]

    def close(self) -> None:
        """Nothing listens any more."""
        if self._thread.is_alive():
            self.server.shutdown()
            self._thread.join()
            self.server.server_close()


@pytest.fixture
def receiver():
    one = Receiver()
    yield one
    one.close()


@pytest.fixture
def node(tmp_path):
    with LiveNode(tmp_path) as live:
        yield live


def configure(node: LiveNode, receiver: Receiver, mode: str = "alert", hold: str = "200ms", recover: str = "200ms"):
    secret = node.directory / "key"
    secret.write_text(SECRET + "\n")
    secret.chmod(0o600)
    hook = HOOK.format(url=f"http://127.0.0.1:{receiver.port}/hook", secret=secret)
    # Not so fast that a slow start is told: what was not read for three intervals is unknown.
    sampling = FAST.replace("100ms", "500ms")
    node.configure(sampling + DECLARED + RULE.format(hold=hold, recover=recover) + ALERT.format(mode=mode) + hook)


def test_each_change_of_fitness_is_one_signed_message(node, receiver):
    configure(node, receiver, hold="10m")
    daemon = node.serving()
    until(lambda: receiver.told == ["fit"])
    node.goes_down()
    until(lambda: receiver.told[-1] == "watch")  # on a slow machine its message might else meet the next one
    configure(node, receiver)
    daemon.reload()
    until(lambda: receiver.told[-1] == "unfit")
    node.comes_up()
    until(lambda: receiver.told[-1] == "fit")
    daemon.end()

    assert receiver.told == ["fit", "watch", "unfit", "fit"]
    assert len(set(receiver.ids)) == 4
    unfit = next(m for m in receiver.messages if m["data"]["fitness"] == "unfit")
    assert unfit["type"] == "ibmon.fitness"
    assert unfit["data"]["previous"] == "watch"
    assert unfit["data"]["why"].startswith("port-down mlx5_3/1 DOWN/Polling")
    assert [f["rule"] for f in unfit["data"]["findings"]] == ["port-down"]


def test_in_observe_mode_nothing_leaves_the_node(node, receiver):
    configure(node, receiver, mode="observe")
    daemon = node.serving()
    node.goes_down()
    node.wait_fitness("unfit")
    target = f"127.0.0.1:{receiver.port}"
    daemon.judge_again(3)

    assert receiver.messages == []
    assert daemon.metric("ibmon_outbox_pending", target=target) == 0
    assert daemon.metric("ibmon_delivery_attempts_total", target=target) == 0


def test_a_dead_receiver_delays_no_verdict_and_gets_the_newest_word_when_it_is_back(node, receiver):
    receiver.close()
    configure(node, receiver)
    daemon = node.serving()
    daemon.wait_line("WARNING", "event=webhook-failing", f"target=127.0.0.1:{receiver.port}")
    node.goes_down()
    node.wait_fitness("unfit")
    daemon.wait_metric("ibmon_drain_wanted", 1)
    assert daemon.lines("event=webhook-failing") == daemon.lines("event=webhook-failing")[:1]

    back = Receiver(receiver.port)
    try:
        until(lambda: back.told)
        assert back.told == ["unfit"], "old news of the same subject was told as well"
        daemon.wait_line("event=webhook-delivering")
    finally:
        back.close()


def held(node):
    """Seconds for which the fault has stood, as the verdict tells; -1 while there is none."""
    texts = [finding["text"] for finding in node.verdict()["findings"]]
    return int(re.fullmatch(r"DOWN/Polling (\d+)s", texts[0])[1]) if texts else -1


def test_kill_9_during_a_hold_loses_no_time_of_it_and_tells_nothing_twice(node, receiver):
    configure(node, receiver, hold="10m", recover="10m")
    daemon = node.serving()
    node.goes_down()
    until(lambda: receiver.told == ["fit", "watch"])
    until(lambda: held(node) >= 1)
    before = node.verdict()
    daemon.end(signal.SIGKILL)

    again = node.serving()
    until(lambda: node.verdict()["sequence"] != before["sequence"] and node.verdict()["findings"])
    assert held(node) >= 1
    assert node.verdict()["findings"][0]["onset"] == before["findings"][0]["onset"]
    configure(node, receiver, hold="1s", recover="10m")
    again.reload()
    until(lambda: receiver.told[-1] == "unfit")
    again.end()
    assert receiver.told == ["fit", "watch", "unfit"]


def test_kill_9_during_a_recovery_goes_on_with_it_and_tells_nothing_twice(node, receiver):
    configure(node, receiver, recover="10m")
    daemon = node.serving()
    until(lambda: receiver.told == ["fit"])
    node.goes_down()
    until(lambda: receiver.told[-1] == "unfit")
    node.comes_up()
    until(lambda: node.verdict()["findings"][0]["recovering"])
    daemon.judge_again()
    daemon.end(signal.SIGKILL)

    again = node.serving()
    assert again.metric("ibmon_port_health", device="mlx5_3", port="1", health="recovering") == 1
    configure(node, receiver)
    again.reload()
    until(lambda: receiver.told[-1] == "fit")
    again.end()
    assert receiver.told.count("unfit") == 1
    assert receiver.told.count("fit") == 2
    assert len(receiver.ids) == len(set(receiver.ids))


def test_what_was_not_delivered_before_kill_9_is_delivered_by_the_next_daemon(node, receiver):
    receiver.close()
    configure(node, receiver, recover="10m")
    daemon = node.serving()
    node.goes_down()
    node.wait_fitness("unfit")
    daemon.wait_line("fitness=unfit")
    daemon.end(signal.SIGKILL)
    again = node.serving()
    again.wait_metric("ibmon_outbox_pending", 1, target=f"127.0.0.1:{receiver.port}")

    back = Receiver(receiver.port)
    try:
        until(lambda: back.told)
        always(lambda: back.told == ["unfit"], 0.3)
    finally:
        back.close()
