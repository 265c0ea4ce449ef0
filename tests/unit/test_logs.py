"""Log lines: one line an event, values bare where nobody can mistake them, quoted where they could be."""

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
        (["gpu-1", "gpu-2"], "gpu-1,gpu-2"),
        (("gpu-00*",), '"gpu-00*"'),
    ],
)
def test_a_value_is_read_back_as_it_was_meant(value, text):
    assert logs.value(value) == text


def test_a_line_names_its_event_first():
    assert logs.line("drained", {"node": "gpu-1", "code": ""}) == 'event=drained node=gpu-1 code=""'
