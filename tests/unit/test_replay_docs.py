"""docs/recording.md says what the format and replay are: its keys are the real ones and its example plays."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import msgspec

from ibmon.configfile import loads
from ibmon.recording import Frame, Header, SchedulerAct
from ibmon.runtime import replay

TEXT = (Path(__file__).parents[2] / "docs" / "recording.md").read_text()
CONFIG = '[action]\nmode = "drain"\nboot_grace = "0s"\n[inventory]\nmode = "declared"\n[[port]]\nmatch = "mlx5_0/1"\n'


def section(title: str) -> str:
    return re.split(r"\n#+ ", TEXT.split(f"# {title}\n", 1)[1])[0]


def keys_of(table: str) -> set[str]:
    """The names in the first column of a table."""
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def names_of(struct: type) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def test_every_key_of_header_and_frame_is_told_and_no_other() -> None:
    assert keys_of(section("Header")) == names_of(Header)
    assert keys_of(section("Frames")) == names_of(Frame) - {"t"}


def test_every_act_at_the_scheduler_is_told() -> None:
    acts = msgspec.inspect.type_info(SchedulerAct).fields[0].type.values

    assert {act for act in acts if f"`{act}`" in TEXT} == set(acts)


def test_every_key_of_the_output_is_told() -> None:
    [example] = re.findall(r"```json\n(\{\"t\": 70.*?)```", TEXT, re.DOTALL)

    assert keys_of(section("What replay prints")) == set(json.loads(example)) - {"t", "reason"}


def test_the_recording_in_the_text_plays_as_the_text_says(tmp_path) -> None:
    example = re.findall(r"```json\n(.*?)```", section("Writing one by hand"), re.DOTALL)[0]
    file = tmp_path / "example.jsonl"
    file.write_text(example)
    out = io.StringIO()
    replay.main(file, loads(CONFIG).config, [], 2000, None, out)
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    [printed] = re.findall(r"```json\n(\{\"t\": 70.*?)```", TEXT, re.DOTALL)

    assert [row["ports"]["mlx5_0/1"] for row in rows][0::2] == ["ok", "failed", "recovering"]
    assert [row["drained"] for row in rows][-1] is False
    assert list(rows[0]) == list(json.loads(printed))
