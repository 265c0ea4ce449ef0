"""The command line as a person or a script meets it: where options may stand, what errors say, how commands end."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ibmon import __version__
from ibmon.cli import INTERRUPTED, main
from ibmon.cli.app import COMMANDS, GROUP
from ibmon.config import Config
from ibmon.configfile import loads

PYTHON = [sys.executable, "-X", "utf8", "-c"]
START = "import sys; from ibmon.cli import main; sys.exit(main())"


def called(capsys, *arguments):
    """Exit code, standard output, and the lines on stderr."""
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err.splitlines()


@pytest.fixture
def site(tmp_path):
    file = tmp_path / "site.toml"
    file.write_text('[action]\nmode = "alert"\n')
    return file


def test_bytes_that_are_no_text_are_told(capsys, tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        (tmp_path / "c.toml").write_text(f'[state]\nruntime_directory = "{tmp_path}"\n')
        listener.bind(str(tmp_path / "control.sock"))
        listener.listen()
        code, out, err = called(capsys, "clear", "--reason", "St\udcf6rung", "--config", tmp_path / "c.toml")
    assert (code, out) == (2, "")
    assert err == ["ibmon: a text of this call cannot be written as utf-8; use UTF-8 throughout"]


@pytest.mark.parametrize("where", ["before", "after", "both"])
def test_global_options_stand_before_or_after_the_command(capsys, site, where, tmp_path):
    option = ["--config", site]
    arguments = {
        "before": [*option, "config", "show"],
        "after": ["config", "show", *option],
        "both": ["--config", tmp_path / "never-read.toml", "config", "show", *option],
    }[where]
    code, out, _ = called(capsys, *arguments)
    assert code == 0
    assert loads(out).config.action.mode.value == "alert"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["statsu"], "there is no command 'statsu'; did you mean status?"),
        (["qqq"], "there is no command 'qqq'; 'ibmon --help' lists them"),
        (["record"], "missing option '--out'"),
        (["config", "chekc"], "no such command 'chekc'"),
        (["status", "--jsno"], "no such option '--jsno'"),
        (["record", "--out", "x", "--for", "10"], '"10" is no duration; write it like "5s"'),
        (["replay", "x", "--at", "5,-1"], "'-1' is no time; write seconds, zero or more"),
        (["replay", "x", "--until", "1767225600"], "1767225600 s are more than ten years"),
        (["--config", "/does/not/exist.toml", "config", "check"], "/does/not/exist.toml: no such file"),
        (["--sysfs", "/does/not/exist", "metrics", "--config", "/dev/null"], "/does/not/exist: no such directory"),
        (["status", "--url", "gpu-17"], "is no URL of a web server"),
        (["status", "--url", "http://x", "--direct"], "give one of them"),
        (["config", "check", "extra"], "got unexpected extra argument (extra)"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(capsys, arguments, line):
    code, out, err = called(capsys, *arguments)
    assert (code, out, len(err)) == (2, "", 1)
    assert err[0].startswith("ibmon: ")
    assert line in err[0]


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_replay_prints_nothing_but_exposition_text_where_it_is_asked_for_the_metrics_of_a_time(
    capsys, tmp_path, json_too
):
    file = tmp_path / "r.jsonl"
    file.write_text('{"ibmon_recording":1}\n{"t":0,"dir":["class/infiniband"]}\n')
    code, out, err = called(capsys, "replay", file, "--metrics-at", "5", *json_too)

    assert (code, err) == (0, [])
    assert "\nibmon_up 1\n" in out
    assert '{"t"' not in out


def test_each_problem_of_a_configuration_has_a_line(capsys, tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text('[action]\nmoed = "drain"\n[sampling]\nstate_interval = 5\n')
    code, out, err = called(capsys, "config", "check", "--config", file)
    assert (code, out) == (2, "")
    assert err == [
        f"ibmon: {file}:2: unknown key action.moed; did you mean action.mode?",
        f'ibmon: {file}:4: sampling.state_interval: 5 has no unit; write "5s" if seconds are meant',
    ]


def test_without_a_command_the_help_comes_on_stderr(capsys):
    code, out, err = called(capsys)
    assert (code, out) == (2, "")
    assert "Commands:" in err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(capsys, name):
    code, out, err = called(capsys, name, "--help")
    assert (code, err) == (0, [])
    assert "--sysfs DIR" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_list_is_the_first_of_the_command_s_help(name):
    command = GROUP.get_command(click.Context(GROUP), name)
    assert command.name == name
    assert COMMANDS[name][1].split()[0] == command.help.split()[0]


def test_the_version_is_told(capsys):
    assert called(capsys, "--version") == (0, f"ibmon {__version__}\n", [])
    assert called(capsys, "version") == (0, f"ibmon {__version__}\n", [])
    assert json.loads(called(capsys, "version", "--json")[1])["version"] == __version__


def test_a_good_configuration_is_called_so(capsys, site):
    code, out, err = called(capsys, "config", "check", "--config", site)
    assert (code, err) == (0, [])
    assert out.startswith(f"ok ({site}; hash ")


def test_a_doubtful_configuration_is_good_with_a_warning(capsys, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('[action]\nmode = "drain"\n')
    code, _, err = called(capsys, "config", "check", "--config", file)
    assert code == 0
    assert [line.split(": ")[1] for line in err] == ["warning"]


def test_the_printed_example_is_a_configuration(capsys):
    assert loads(called(capsys, "config", "example")[1]).config == Config()


def test_the_configuration_is_told_to_programs(capsys, site):
    found = json.loads(called(capsys, "config", "show", "--json", "--config", site)[1])
    assert found["config"]["action"]["mode"] == "alert"
    assert found["origins"]["action.mode"] == f"{site}:2"
    assert found["origins"]["node.name"] == "default"
    assert found["files"] == [str(site)]


# ------------------------------------------------------------------------------------------------------- as a process


def start(*arguments, **kwargs):
    return subprocess.Popen([*PYTHON, START, *map(str, arguments)], stderr=subprocess.PIPE, text=True, **kwargs)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full, start("config", "example", stdout=full) as process:
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (1, "ibmon: No space left on device\n")


def test_a_reader_that_goes_away_is_met_with_silence():
    read, write = os.pipe()
    os.close(read)
    try:
        with start("config", "example", stdout=write) as process:
            _, err = process.communicate(timeout=30)
    finally:
        os.close(write)
    assert (process.returncode, err) == (1, "")


def test_an_interrupt_ends_a_recording_with_a_whole_file_and_code_130(tmp_path):
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    out = tmp_path / "r.jsonl"
    arguments = ("record", "--config", "/dev/null", "--sysfs", tmp_path / "sys", "--out", out, "--for", "1h")
    with start(*arguments, stdout=subprocess.DEVNULL) as process:
        first = process.stderr.readline()  # it is told when the first frame is written
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=30)
    assert process.returncode == INTERRUPTED
    assert "recording to" in first
    assert "Traceback" not in rest
    assert [next(iter(json.loads(line))) for line in out.read_text().splitlines()] == ["ibmon_recording", "t"]


def imported(*arguments):
    """The modules that a command has loaded when it ends."""
    code = "import sys; from ibmon.cli import main; main(); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [*PYTHON, code, *arguments], check=False, capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL
    )
    return set(done.stderr.split())


def test_the_list_of_commands_loads_none_of_them():
    loaded = imported("--help")
    assert "click" in loaded
    heavy = {"rich", "prometheus_client", "psutil", "pyudev", "apscheduler", "urllib3", "sqlite3", "ibmon.engine"}
    assert heavy & loaded == set()
    assert [name for name in loaded if name.startswith("ibmon.cli.")] == [
        name for name in loaded if name in {"ibmon.cli.app", "ibmon.cli.common"}
    ]


def test_starting_the_program_imports_nothing_of_the_command_line():
    code = "import sys; import ibmon.cli; print('click' in sys.modules, 'msgspec' in sys.modules)"
    assert subprocess.check_output([*PYTHON, code], text=True).split() == ["False", "False"]


def test_the_daemon_never_loads_rich():
    # It ends at once, after everything is imported: a configuration that is not there.
    loaded = imported("run", "--config", "/does/not/exist")
    assert "ibmon.runtime.live" in loaded
    assert "rich" not in loaded


@pytest.mark.parametrize("closed", ["1", "1 2", "0 1 2"])
def test_what_was_started_without_an_output_does_its_work(closed):
    redirections = " ".join(f"{descriptor}>&-" for descriptor in closed.split())
    command = f'exec "$@" {redirections}'
    words = ["sh", "-c", command, "sh", *PYTHON, START, "version"]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_wait_ends_well_though_nobody_takes_what_it_says(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(f'[state]\nruntime_directory = "{tmp_path}"\n')
    with (
        Path("/dev/full").open("w") as full,
        start("wait", "--for", "100ms", "--config", file, stdout=full) as process,
    ):
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
