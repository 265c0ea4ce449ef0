"""A class directory that cannot be read: each time that it becomes so is one line, whatever else happens meanwhile."""

from __future__ import annotations

import errno

import pytest

from ibmon.config import Config
from ibmon.engine import Engine, Identity
from ibmon.messages import ListingDone, Log
from ibmon.model import Listing, Now

READABLE, ABSENT, CLOSED = ((), None), (None, errno.ENOENT), (None, errno.EACCES)


@pytest.mark.parametrize(
    ("listings", "lines"),
    [
        ([ABSENT] * 9, 1),
        ([READABLE] + [CLOSED] * 9, 1),
        ([CLOSED, READABLE] * 3, 3),
        ([ABSENT, READABLE, READABLE, CLOSED, CLOSED], 2),
        ([READABLE] * 3, 0),
    ],
)
def test_that_it_cannot_be_read_is_said_when_it_begins(listings, lines):
    engine = Engine(Config(), Identity("node", "boot", 0.0), Now(1000.0, 2000.0))
    told = []
    for second, (names, code) in enumerate(listings):
        now = Now(1000.0 + second, 2000.0 + second)
        told += engine.step(ListingDone(Listing(names, code, now)), now)
    assert [e.event for e in told if isinstance(e, Log)].count("class-unreadable") == lines
