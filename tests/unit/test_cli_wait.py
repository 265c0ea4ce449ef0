"""`ibmon wait`: until the node is fit, or its time is up; it keeps no boot from going on."""

import msgspec
import pytest
from verdicts_said import said, shot, unfit

from ibmon.cli import check, main, wait
from ibmon.configfile import loads
from ibmon.model import Now


@pytest.fixture
def here(tmp_path):
    """A configuration whose runtime directory is an empty one."""
    file = tmp_path / "c.toml"
    file.write_text(f'[state]\nruntime_directory = "{tmp_path}"\n')
    return file


class Time:
    """Virtual time that moves when somebody sleeps; `events` say what the daemon does meanwhile."""

    def __init__(self, monkeypatch, events=()):
        self.now, self.events, self.slept = 0.0, sorted(events, key=lambda e: e[0]), 0
        monkeypatch.setattr(wait.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(wait.time, "sleep", self.sleep)

    def sleep(self, seconds):
        self.now += seconds
        self.slept += 1
        while self.events and self.events[0][0] <= self.now:
            self.events.pop(0)[1]()


def at(now, what, **more):
    return msgspec.structs.replace(what, at=Now(now, 0.0), **more)


def waited(capsys, here, *arguments):
    code = main(["wait", "--config", str(here), *arguments])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


@pytest.mark.parametrize("fitness", ["fit", "watch"])
def test_a_node_that_is_fit_is_not_waited_for(capsys, monkeypatch, here, fitness):
    clock = Time(monkeypatch)
    said(here, at(0, shot(fitness)))
    assert waited(capsys, here) == (0, [f"node1 is {fitness} (waited 0 s)"], "")
    assert clock.slept == 0


def test_the_wait_ends_when_the_node_gets_fit_with_one_line_a_change(capsys, monkeypatch, here):
    events = [
        (n, lambda n=n: said(here, at(n, unfit(why=f"port-down mlx5_3/1 DOWN/Polling {n}s>60s")))) for n in range(5, 30)
    ]
    Time(monkeypatch, [*events, (30, lambda: said(here, at(30, shot("fit"))))])
    code, out, err = waited(capsys, here, "--for", "10m")
    assert (code, err) == (0, "")
    assert [line.partition(":")[0] for line in out[:2]] == ["this node is unknown", "node1 is unfit"]
    assert out[2:] == ["node1 is fit (waited 30 s)"]


def test_another_cause_is_another_line(capsys, monkeypatch, here):
    said(here, at(0, unfit()))
    Time(monkeypatch, [(3, lambda: said(here, at(3, unfit(why="rate-low mlx5_0/1 200<400Gb/s 4X 61s>60s"))))])
    out = waited(capsys, here, "--for", "5s")[1]
    assert [line.split()[3] for line in out] == ["port-down", "rate-low", "rate-low"]


@pytest.mark.parametrize(
    "what", [None, "{{{", at(0, unfit()), at(0, shot("unknown"))], ids=["none", "bad", "unfit", "?"]
)
def test_when_the_time_is_up_the_boot_goes_on(capsys, monkeypatch, here, what):
    clock = Time(monkeypatch)
    if what is not None:
        said(here, what)
    code, out, err = waited(capsys, here, "--for", "10s")
    assert (code, err) == (0, "")
    assert len(out) == 2
    assert out[-1].endswith("; 10s are up, going on without a good verdict")
    assert clock.now == 10


def test_ctrl_c_ends_the_wait(capsys, monkeypatch, here):
    def interrupt():
        raise KeyboardInterrupt

    Time(monkeypatch, [(3, interrupt)])
    assert waited(capsys, here)[0] == 130


def test_a_time_that_is_none_is_a_mistake(capsys, here):
    code, out, err = waited(capsys, here, "--for", "10")
    assert (code, out) == (2, [])
    assert "is no duration" in err


def test_the_directory_is_the_one_that_the_daemon_would_use(here):
    class Given:
        config = here
        load = staticmethod(lambda: loads(here.read_text()))

    assert check.directory(Given) == here.parent
