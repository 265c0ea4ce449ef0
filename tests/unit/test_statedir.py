"""The state directory: one daemon has it, and what kind of file system it lies on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from livenode import drop_override

from ibmon import statedir
from ibmon.ports import StoreError
from ibmon.statedir import NODE_LOCK, StateLock, network_file_system

HOLDER = """
import sys
from ibmon.statedir import StateLock
print(StateLock(sys.argv[1]).acquire(), flush=True)
sys.stdin.read()
"""


def test_one_daemon_holds_the_lock_and_its_death_by_kill_9_frees_it(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "True\n"
        lock = StateLock(tmp_path)
        assert lock.acquire() is False
        assert lock.holder() == child.pid
        child.kill()
        child.wait()
        assert lock.acquire() is True
        assert lock.acquire() is True
        assert lock.holder() == os.getpid()
        lock.release()
        assert StateLock(tmp_path).acquire() is True
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_a_released_lock_is_free_in_the_same_process(tmp_path):
    first, second = StateLock(tmp_path), StateLock(tmp_path)
    assert first.acquire()
    assert not second.acquire()
    first.release()
    first.release()
    assert second.acquire()
    second.release()


def test_a_lock_that_cannot_be_used_is_told(tmp_path):
    with pytest.raises(StoreError, match=r"ibmon\.lock cannot be opened: No such file"):
        StateLock(tmp_path / "absent").acquire()
    assert StateLock(tmp_path / "absent").holder() is None


MOUNTS = r"""
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:40 / /var/lib rw shared:5 - nfs4 server:/export rw
31 30 254:2 / /var/lib/local rw - xfs /dev/vdb rw
32 22 0:41 / /mnt/with\040space rw - lustre mds:/fs rw
33 22 0:42 / /srv rw - ext4 /dev/vdc rw
34 33 0:43 / /srv rw master:1 propagate_from:2 - fuse.sshfs host: rw
35 22 0:44 / /home rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/etc/ibmon", None),
        ("/var/lib/ibmon", "nfs4"),
        ("/var/lib", "nfs4"),
        ("/var/library", None),
        ("/var/lib/local/ibmon", None),
        ("/mnt/with space/x", "lustre"),
        ("/srv/ibmon", "fuse.sshfs"),
        ("/home/x", None),
    ],
)
def test_the_innermost_and_latest_mount_says_which_file_system_it_is(path, expected):
    assert network_file_system(path, MOUNTS) == expected


def test_an_unknown_table_is_no_network_file_system(tmp_path, monkeypatch):
    assert network_file_system(tmp_path, "") is None
    assert network_file_system(tmp_path) is None
    monkeypatch.setattr(statedir, "Path", lambda path: (_ for _ in ()).throw(OSError(13, "denied")))
    assert network_file_system(str(tmp_path)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_lock_that_another_user_has_made_can_be_taken_and_is_seen_to_be_taken(tmp_path):
    theirs = StateLock(tmp_path, NODE_LOCK)
    assert theirs.acquire()
    os.chown(theirs.path, 65534, 65534)
    ours = "import sys; from ibmon.statedir import *; print(StateLock(sys.argv[1], NODE_LOCK).acquire())"
    for expected in ("False", "True"):
        run = [sys.executable, "-c", ours, str(tmp_path)]
        shown = subprocess.run(run, capture_output=True, text=True, check=True, preexec_fn=drop_override)
        assert shown.stdout.strip() == expected, shown
        theirs.release()
