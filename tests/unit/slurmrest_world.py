"""What the tests of the way through slurmrestd share: the server, a token in a file, a client, and how a call fails."""

from __future__ import annotations

import msgspec
import pytest
from fake_slurmrestd import FakeSlurmrestd

from ibmon.config import SlurmConfig
from ibmon.drain.slurmrest import SlurmRest
from ibmon.ports import SchedulerError

REASON = "ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id 7f3a9c]"
TOKEN = "eyJhbGciOi.eyJzdW4iOi.c2VjcmV0"


@pytest.fixture
def server():
    with FakeSlurmrestd() as fake:
        fake.add("node1")
        yield fake
        assert fake.broken == []


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


def client(server, name="node1", environ=None, **config):
    return SlurmRest(
        SlurmConfig(node_name=name, rest_url=server.url, **{"timeout": 20.0, **config}),
        environ=environ or {},
        hostname=lambda: "host-a",
        full_hostname=lambda: "host-a.example.org",
    )


def failing(do):
    """What a call raises: one line without the token."""
    with pytest.raises(SchedulerError) as caught:
        do()
    assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
    return caught.value


def errors(*texts):
    return msgspec.json.encode({"errors": [{"error": text, "error_number": 1} for text in texts]})
