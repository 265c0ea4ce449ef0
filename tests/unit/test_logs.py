"""Log lines: one line an event, values bare where nobody can mistake them, quoted where they could be."""

import io
import logging

import pytest

from ibmon.runtime import logs


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (3, "3"),
        ("mlx5_3/1", "mlx5_3/1"),
        ("two words", '"two words"'),
        ('say "no"', r'"say \"no\""'),
        ("a\nb", r'"a\nb"'),
        ("a=b", '"a=b"'),
        ("a\x1b]0;b\x07", r'"a\x1b]0;b\x07"'),
        ("a\rb\x9bc", r'"a\rb\x9bc"'),
        ("müde", '"müde"'),
        (["gpu-1", "gpu-2"], "gpu-1,gpu-2"),
        (("gpu-00*",), '"gpu-00*"'),
    ],
)
def test_a_value_is_read_back_as_it_was_meant(value, text):
    assert logs.value(value) == text


def test_a_line_names_its_event_first():
    assert logs.line("drained", {"node": "gpu-1", "code": ""}) == 'event=drained node=gpu-1 code=""'


@pytest.fixture
def written(monkeypatch):
    """What is written to standard error, as the daemons set it up."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr("sys.stderr", found := io.StringIO())
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    logs.setup()
    return found


def test_words_of_others_steer_no_terminal(written):
    logging.getLogger("t").warning("scontrol says: %s", "no\x1b[2J\r\x9b")
    assert written.getvalue().endswith(" WARNING scontrol says: no\\x1b[2J\\r\\x9b\n")


def test_a_trace_keeps_its_lines(written):
    try:
        int("odd\N{NEXT LINE}")
    except ValueError:
        logging.getLogger("t").exception("failed\x1b")
    lines = written.getvalue().splitlines()
    assert lines[0].endswith(r"failed\x1b")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1].startswith("ValueError: ")
