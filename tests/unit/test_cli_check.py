"""`ibmon check` and `ibmon wait`: every answer by every kind of verdict, and that nothing else can keep a job away."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verdicts_said import HELD, REASON, WANTED, WHY, drained, said, shot, unfit

from ibmon.cli import main, quickcheck, verdictfile
from ibmon.cli.quickcheck import FORMATS, Options, parse
from ibmon.config import StateConfig
from ibmon.configfile import loads
from ibmon.exporter import status
from ibmon.exporter.status import status_document
from ibmon.model import BlockCode, Mode, NodeFitness, Now, Ownership
from ibmon.runtime import host, once
from ibmon.runtime.verdict import FILE
from ibmon.simulate.dgx import dgx
from ibmon.simulate.directory import DirectoryTree
from ibmon.snapshot import DrainView


@pytest.fixture
def here(tmp_path):
    """A configuration whose runtime directory is an empty one."""
    file = tmp_path / "c.toml"
    file.write_text(f'[state]\nruntime_directory = "{tmp_path}"\n')
    return file


def asked(capsys, config, *arguments):
    code = main(["check", "--config", str(config), *arguments])
    out, err = capsys.readouterr()
    return code, out, err


CODES = {  # plain, --strict, nagios, npd
    "fit": (0, 0, 0, 0),
    "watch": (0, 0, 1, 0),
    "unfit": (1, 1, 2, 1),
    "unknown": (0, 2, 3, 2),
}
CALLS = ((), ("--strict",), ("--format", "nagios"), ("--format", "npd"))


@pytest.mark.parametrize("fitness", CODES)
@pytest.mark.parametrize(("call", "column"), [(call, n) for n, call in enumerate(CALLS)], ids=str)
def test_each_fitness_has_its_exit_code(capsys, here, fitness, call, column):
    said(here, shot(fitness, why=WHY))
    code, out, err = asked(capsys, here, *call)
    assert (code, err) == (CODES[fitness][column], "")
    assert out.count("\n") == 1
    assert "port-down mlx5_3/1" in out


BAD_FILES = {  # made when they are needed, so that none is stale for another reason
    "missing": lambda: None,
    "empty": lambda: "",
    "garbage": lambda: "{{{",
    "not text": lambda: b"\xff\xfe\x00",
    "no document": lambda: "[1, 2]",
    "endless nesting": lambda: "[" * 100_000,
    "an absurd number": lambda: f'{{"v": {"9" * 5000}}}',
    "another version": lambda: {**status_document(unfit()), "v": 2},
    "no version": lambda: {k: v for k, v in status_document(unfit()).items() if k != "v"},
    "another boot": lambda: {**status_document(unfit()), "boot_id": "00000000-0000-0000-0000-000000000000"},
    "no time": lambda: {k: v for k, v in status_document(unfit()).items() if k != "monotonic"},
    "time as text": lambda: {**status_document(unfit()), "monotonic": "now"},
    "time that is none": lambda: {**status_document(unfit()), "monotonic": True},
    "no number": lambda: json.dumps({**status_document(unfit()), "monotonic": float("nan")}),
    "endless number": lambda: {**status_document(unfit()), "monotonic": 10**400},
    "from the future": lambda: status_document(unfit(at=Now(time.monotonic() + 3600, 0))),
    "stale": lambda: status_document(unfit(at=Now(time.monotonic() - 61, time.time()))),
    "a fitness of another time": lambda: {**status_document(unfit()), "fitness": "sick"},
    "a fitness that is no word": lambda: {**status_document(unfit()), "fitness": ["unfit"]},
}


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.parametrize(("call", "code"), [*zip(CALLS, CODES["unknown"], strict=True), (("--gate",), 0)], ids=str)
def test_what_cannot_be_believed_is_unknown(capsys, here, name, call, code):
    what = BAD_FILES[name]()
    if what is not None:
        said(here, what)
    found, out, err = asked(capsys, here, *call)
    assert (found, err) == (code, "")
    assert "unknown" in out.lower()
    assert out.count("\n") == 1


def test_a_verdict_is_believed_for_a_minute(here):
    said(here, unfit(at=Now(time.monotonic() - 55, time.time())))
    found = verdictfile.read(here.parent)
    assert found.fitness == "unfit"
    assert 55 <= found.age <= 60


def test_a_verdict_file_that_is_a_directory_or_forbidden_is_unknown(capsys, here):
    (here.parent / FILE).mkdir()
    code, out, _ = asked(capsys, here, "--strict")
    assert code == 2
    assert "cannot be read: Is a directory" in out


def test_the_wall_clock_does_not_matter(here):
    said(here, unfit(at=Now(time.monotonic(), 0.0)))
    os.utime(here.parent / FILE, (0, 0))
    assert verdictfile.read(here.parent).fitness == "unfit"


def test_the_line_names_node_fitness_and_cause(capsys, here):
    said(here, unfit())
    assert asked(capsys, here)[1] == f"node1 is unfit: {WHY}\n"


def test_json_has_the_verdict_and_its_findings(capsys, here):
    said(here, unfit())
    code, out, _ = asked(capsys, here, "--json")
    found = json.loads(out)
    assert code == 1
    assert (found["node"], found["fitness"], found["why"], found["mode"]) == ("node1", "unfit", WHY, "observe")
    assert [f["rule"] for f in found["findings"]] == ["port-down"]
    assert 0 <= found["age_seconds"] < 60


# ------------------------------------------------------------------------------------------------ formats


def test_nagios_gets_one_status_line_with_performance_data(capsys, here):
    said(here, unfit(why=f"{WHY} | rm\nsecond line"))
    out = asked(capsys, here, "--format", "nagios")[1]
    status_line, bar, data = out.rstrip("\n").partition(" | ")
    assert status_line == f"IBMON CRITICAL - node1 is unfit: {WHY} / rm second line"
    assert bar
    values = dict(item.split("=") for item in data.split())
    assert values["ports"] == "2;;;0"
    assert values["ports_ok"] == "1;;;0;2"
    assert (values["findings"], values["critical"]) == ("1;;;0", "1;;;0")
    assert values["age"].endswith("s;;60;0")


def test_nagios_gets_no_performance_data_where_nothing_is_known(capsys, here):
    assert "|" not in asked(capsys, here, "--format", "nagios")[1]


def test_npd_gets_no_more_than_it_keeps(capsys, here):
    said(here, unfit(why="mlx5_3/1 " * 40))
    out = asked(capsys, here, "--format", "npd")[1]
    assert len(out.rstrip("\n")) == 80
    assert out.startswith("unfit: mlx5_3/1")


def test_every_line_is_printable_ascii(capsys, here):
    said(here, unfit(why="Ümlaut \x1b[31m → red"))
    for call in CALLS:
        out = asked(capsys, here, *call)[1]
        assert out.rstrip("\n").isascii()
        assert out.rstrip("\n").isprintable()


# ------------------------------------------------------------------------------------------------ the gate


def test_the_gate_refuses_while_our_drain_is_in_force(capsys, here):
    said(here, drained())
    assert asked(capsys, here, "--gate") == (1, f"refuse: {REASON}\n", "")


GATE_OPEN = {
    "mode observe": lambda: drained(mode=Mode.OBSERVE),
    "mode alert": lambda: drained(mode=Mode.ALERT),
    "unfit without a drain": lambda: unfit(mode=Mode.DRAIN),
    "only wanted": lambda: drained(drain=DrainView(WANTED)),
    "blocked": lambda: drained(drain=DrainView(WANTED, blocked=BlockCode.LIMIT_NODES)),
    "asked for and not read back": lambda: drained(drain=DrainView(WANTED, Ownership("7f3a9c", REASON, 1.7e9))),
    "an operator's resume": lambda: drained(drain=DrainView(WANTED, HELD, overridden=True)),
    "an old word": lambda: drained(at=Now(time.monotonic() - 61, time.time())),
    "another boot": lambda: drained(boot_id="00000000-0000-0000-0000-000000000000"),
    "no drain": lambda: {**status_document(drained()), "drain": None},
    "an owner that is none": lambda: {**status_document(drained()), "drain": {"owned": "yes", "active": True}},
    "held by a word": lambda: {**status_document(drained()), "drain": {"owned": {"held": "false"}}},
}


@pytest.mark.parametrize("name", GATE_OPEN)
def test_the_gate_is_open_for_everything_else(capsys, here, name):
    said(here, GATE_OPEN[name]())
    code, out, err = asked(capsys, here, "--gate")
    assert (code, err) == (0, "")
    assert out.startswith("pass: ")


ON_RECORD = ["mode observe", "mode alert", "asked for and not read back", "an operator's resume"]
NO_WORD = ["an old word", "another boot"]


@pytest.mark.parametrize("name", GATE_OPEN)
def test_an_open_gate_says_whether_a_drain_is_on_record(capsys, here, name):
    """Before ibmon is removed each node is asked, and what is not given back then nobody gives back."""
    said(here, GATE_OPEN[name]())
    _, out, _ = asked(capsys, here, "--gate")
    assert out.endswith(f"; on record: {REASON}\n") == (name in ON_RECORD)
    assert out.endswith("; no word of a drain\n") == (name in NO_WORD)


@pytest.mark.parametrize(
    "mistake",
    [
        ["--strcit"], ["--strict"], ["--format", "npd"], ["--json"], ["--direct"], ["--help"], ["extra"],
        ["--sysfs", "/does/not/exist"], ["--config", "/does/not/exist"], ["--config"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_mistake_in_the_call_does_not_shut_the_gate(capsys, here, mistake):
    said(here, drained())
    assert main(["check", "--config", str(here), "--gate", *mistake]) == 0
    capsys.readouterr()


def test_a_broken_configuration_does_not_shut_the_gate(capsys, here):
    here.write_text("[state\n")
    code, _, err = asked(capsys, here, "--gate")
    assert code == 0
    assert "not valid TOML" in err


@pytest.mark.parametrize(
    "trouble", [RuntimeError("a bug"), MemoryError(), SystemExit(1), KeyboardInterrupt()], ids=repr
)
def test_no_trouble_shuts_the_gate(capsys, monkeypatch, trouble):
    def fail(_):
        raise trouble

    monkeypatch.setattr(quickcheck, "run", fail)
    assert main(["check", "--gate"]) == 0
    assert "the gate is open" in capsys.readouterr().err


def test_the_gate_says_what_is_wrong_with_its_call(capsys, here):
    code, out, err = asked(capsys, here, "--gate", "--strict")
    assert (code, out) == (0, "")
    assert "--gate has its own answer" in err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(key=st.sampled_from(sorted(status_document(drained()))), value=JSON)
def test_no_value_in_the_file_breaks_an_answer_or_shuts_the_gate(key, value):
    document = {**status_document(drained(mode=Mode.ALERT)), key: value}
    found = verdictfile.believe(document, "FILE", host.boot_id(), time.monotonic())
    for form in FORMATS:
        line, code = quickcheck.answer(Options(format=form), found)
        assert "\n" not in line
        assert code in range(4)
    if key != "mode":
        assert quickcheck.answer(Options(gate=True), found).code == 0


# ------------------------------------------------------------------------------------------------ the call


def options_of_the_slow_path(monkeypatch, arguments):
    """What the click command makes of the same words."""
    seen = []

    def answer(options, _):
        seen.append(options)
        return quickcheck.Answer("", 0)

    monkeypatch.setattr(quickcheck, "answer", answer)
    monkeypatch.setattr(quickcheck, "run", lambda _: None)
    assert main(arguments) == 0
    return seen[0]


@pytest.mark.parametrize(
    "words",
    [
        ["check"], ["check", "--strict"], ["check", "--gate"], ["check", "--json", "--strict"],
        ["check", "--format", "nagios"], ["check", "--format=npd", "--strict"],
    ],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("before", [True, False])
def test_the_quick_reading_of_a_call_is_the_same_as_the_whole_one(capsys, monkeypatch, here, words, before):
    option = ["--config", str(here)]
    arguments = [*option, *words] if before else [*words, *option]
    quick = parse(arguments)
    assert quick is not None
    assert quick[1] == here
    assert options_of_the_slow_path(monkeypatch, arguments) == quick[0]


@pytest.mark.parametrize(
    "words",
    [
        [], ["status"], ["config", "check"], ["--config", "check"], ["check", "--help"], ["check", "check"],
        ["check", "--direct"], ["check", "--sysfs", "/sys"], ["check", "--format", "xml"], ["check", "--format"],
        ["check", "--gate", "--strict"], ["check", "--json", "--format", "npd"], ["--strict", "check"],
        ["check", "--strict=yes"], ["check=1"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_is_no_plain_call_is_left_to_the_whole_command(words):
    assert parse(words) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "xml"], "'xml' is not one of"),
        (["--json", "--format", "npd"], "--json and --format exclude each other"),
        (["--strcit"], "no such option '--strcit'"),
        (["extra"], "unexpected extra argument"),
    ],
)
def test_a_mistake_in_the_call_is_one_line_and_exit_code_2(capsys, here, arguments, words):
    code, out, err = asked(capsys, here, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


@pytest.mark.parametrize(
    "text", ["[state\n", '[state]\nruntime_directory = "run"\n', "[state]\nruntime_directory = 5\n"]
)
def test_a_configuration_that_is_wrong_is_exit_code_2_and_unknown_to_monitors(capsys, here, text):
    here.write_text(text)
    code, out, err = asked(capsys, here)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(here) in err
    code, out, _ = asked(capsys, here, "--format", "nagios")
    assert code == 3
    assert out.startswith("IBMON UNKNOWN")
    assert asked(capsys, here, "--format", "npd")[0] == 2


def test_without_a_configuration_the_default_directory_is_read(monkeypatch, capsys, here):
    monkeypatch.setattr(verdictfile, "DIRECTORY", here.parent)
    said(here, unfit())
    assert main(["check"]) == 1
    capsys.readouterr()


@pytest.mark.parametrize("text", ["", "[state]\n", '[action]\nmode = "drain"\n'])
def test_a_configuration_that_does_not_name_the_directory_means_the_default(here, text):
    here.write_text(text)
    assert verdictfile.directory_of(here) == Path(loads(text).config.state.runtime_directory)


def test_what_is_written_twice_for_speed_is_equal():
    assert (verdictfile.VERSION, verdictfile.MAX_AGE, verdictfile.FILE) == (status.VERSION, status.TTL, FILE)
    assert StateConfig().runtime_directory == str(verdictfile.DIRECTORY)
    assert {f.value for f in NodeFitness} == verdictfile.FITNESS


@pytest.mark.parametrize("call", [["check"], ["check", "--gate"], ["check", "--config", "FILE", "--format", "nagios"]])
def test_a_check_loads_nothing_that_is_dear(here, call):
    said(here, unfit())
    arguments = [str(here) if word == "FILE" else word for word in call]
    script = (
        "import sys; from ibmon.cli import main; main(sys.argv[1:]); "
        "print(*sorted(sys.modules), sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True, timeout=30
    )
    loaded = set(done.stderr.split())
    dear = {"click", "rich", "msgspec", "urllib3", "importlib.metadata", "argparse", "dataclasses", "ibmon.model"}
    assert "ibmon.cli.quickcheck" in loaded
    assert loaded & dear == set()


def test_a_check_takes_less_than_a_tenth_of_a_second_of_a_processor(here):
    said(here, unfit())
    script = "import sys; from ibmon.cli import main; sys.exit(main(sys.argv[1:]))"
    best = float("inf")
    for _ in range(5):
        process = os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", script, "check", "--config", str(here)],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
        )
        _, ended, usage = os.wait4(process, 0)
        assert os.waitstatus_to_exitcode(ended) == 1
        best = min(best, usage.ru_utime + usage.ru_stime)
    assert best < 0.1


@pytest.mark.parametrize(("call", "code"), [((), 1), (("--gate",), 1)], ids=["plain", "gate"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_an_answer_that_nobody_takes_keeps_its_exit_code(here, call, code):
    said(here, drained())
    script = "import sys; from ibmon.cli import main; sys.exit(main(sys.argv[1:]))"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", script, "check", "--config", str(here), *call],
            stdout=full, stderr=subprocess.PIPE, check=False, timeout=30,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, b"")


# ------------------------------------------------------------------------------------------------ one look


@pytest.fixture
def tree(tmp_path):
    DirectoryTree(tmp_path / "sys").apply(dgx().frame())
    return tmp_path / "sys"


def test_a_direct_look_reads_the_hardware_and_not_the_daemon_s_word(capsys, here, tree):
    said(here, unfit())
    code, out, err = asked(capsys, here, "--direct", "--sysfs", str(tree))
    expected = once.snapshot(loads(here.read_text()).config, tree)
    assert (code, err) == (0, "")
    assert out.split(":")[0].rstrip().endswith(f"is {expected.fitness.value}")


def test_a_tree_that_is_named_is_looked_at(capsys, here, tree):
    said(here, unfit())
    assert asked(capsys, here, "--sysfs", str(tree))[0] == 0
