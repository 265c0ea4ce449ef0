"""The state directory: the locks that make one daemon of a node the acting one, and what file system it lies on.

It knows nothing of what is stored there; that is `ibmon/store.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path
from typing import Final

from ibmon.ports import StoreError

LOCK_NAME: Final = "ibmon.lock"

NODE_LOCK: Final = "daemon.lock"
"""The lock in the runtime directory: it is the node's, whatever state directory a second daemon may have."""

# SQLite's WAL needs shared memory between processes of one host, and many of these lock poorly
# (https://www.sqlite.org/wal.html, "does not work over a network filesystem").
_NETWORK: Final = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "coda", "ncpfs", "virtiofs"),
        *("lustre", "gpfs", "beegfs", "beegfs_nodev", "panfs", "wekafs", "orangefs", "pvfs2", "glusterfs", "ocfs2"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.s3fs", "fuse.juicefs", "fuse.moosefs"),
    }
)


class StateLock:
    """The lock of a state directory. The kernel releases it when the process dies, however it dies."""

    def __init__(self, directory: str | Path, name: str = LOCK_NAME) -> None:
        self.path = Path(directory) / name
        self._fd: int | None = None

    def acquire(self) -> bool:
        """Take the lock; False where another process has it, StoreError where the file cannot be used."""
        if self._fd is not None:
            return True
        try:
            fd = self._open()
        except OSError as error:
            raise StoreError(f"{self.path} cannot be opened: {error.strerror}; the lock must be there to act") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except OSError as error:
            os.close(fd)
            raise StoreError(f"{self.path} cannot be locked: {error.strerror}; use a local directory") from None
        self._fd = fd
        with contextlib.suppress(OSError):  # for people only; a full disk does not matter here
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
        return True

    def _open(self) -> int:
        """The file; one that another user has made is opened too, since reading is enough to lock (flock(2))."""
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except PermissionError:
            if not self.path.exists():
                raise
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)

    def holder(self) -> int | None:
        """Process id that the holder wrote down, for a message; None where it is not to be read."""
        try:
            return int(self.path.read_text())
        except (OSError, ValueError):
            return None

    def release(self) -> None:
        """Give the lock to a successor."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def network_file_system(directory: str | Path, mountinfo: str | None = None) -> str | None:
    """The type of the network file system that holds a directory, or None for a local one or an unknown table.

    `mountinfo` is the text of /proc/self/mountinfo (proc_pid_mountinfo(5)), read here where it is not given.
    """
    if mountinfo is None:
        try:
            mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
    kind = _type_of(os.path.realpath(directory), mountinfo)
    return kind if kind in _NETWORK else None


def _type_of(path: str, mountinfo: str) -> str | None:
    """File system type of the innermost mount that holds `path`; of mounts on one place the last one counts."""
    best, kind = -1, None
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if "-" not in fields[6:]:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), fields[4])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= best:
            best, kind = len(mount), fields[fields.index("-", 6) + 1]
    return kind
