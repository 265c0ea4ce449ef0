"""What a running daemon keeps: a state that could not be saved is owed until it is."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from ibmon.configfile import loads
from ibmon.exporter.selfmetrics import SelfMetrics
from ibmon.messages import Save
from ibmon.model import Now
from ibmon.ports import StoreError
from ibmon.runtime.persist import Persistence

NOW = Now(1.0, 1_700_000_000.0)


@pytest.fixture
def kept(tmp_path):
    (tmp_path / "run").mkdir()
    config = loads(f'[state]\ndirectory = "{tmp_path}"\nruntime_directory = "{tmp_path / "run"}"\n').config
    persistence = Persistence(config, "node1", "", "", SelfMetrics([]))
    yield persistence
    persistence.close()


def fill(monkeypatch, kept):
    """From now on the disk is full."""

    def full(state):
        raise StoreError("disk full")

    monkeypatch.setattr(kept.store, "save", full)


def test_a_state_that_could_not_be_saved_is_saved_when_there_is_room_although_nothing_changes_any_more(
    monkeypatch, kept
):
    fill(monkeypatch, kept)
    kept.commit([Save(b"one")], NOW)
    kept.commit([], NOW)
    assert kept.troubles() == {"state-unsaved": "disk full"}
    monkeypatch.undo()
    kept.commit([], NOW)
    assert kept.troubles() == {}
    assert kept.store.load() == b"one"


def test_what_is_owed_never_takes_the_place_of_what_is_newer(monkeypatch, kept):
    fill(monkeypatch, kept)
    kept.commit([Save(b"one")], NOW)
    monkeypatch.undo()
    kept.commit([Save(b"two")], NOW)
    kept.commit([], NOW)
    assert kept.store.load() == b"two"


@pytest.mark.parametrize("state", [b"", b"{", b"\x00", b"\xff", b"{}", b'{"version": 99}', "text"])
def test_a_state_that_is_damaged_is_told(kept, caplog, state):
    """Learning starts anew then, and what was learned is not there to drain by."""
    kept.store.save(b"one")
    with contextlib.closing(sqlite3.connect(kept.store.path)) as file:
        file.execute("UPDATE state SET body = ?", (state,))
        file.commit()
    assert kept.load() is None
    assert "starting without history" in caplog.text
    assert list(kept.troubles()) == ["state-lost"]


def test_no_state_at_all_is_nothing_to_tell(kept, caplog):
    assert kept.load() is None
    assert (kept.troubles(), caplog.text) == ({}, "")
