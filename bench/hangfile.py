"""A file whose reads hang for as long as one likes: FUSE spoken over /dev/fuse, for one regular file.

Owns the mount and the few requests that a reader of one file makes (include/uapi/linux/fuse.h). Needs root. A reader
sleeps in the kernel as in a driver that waits for firmware, except that SIGKILL ends it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import struct
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DEVICE: Final = "/dev/fuse"

_GETATTR, _OPEN, _READ, _RELEASE, _FLUSH, _INIT, _DESTROY = 3, 14, 15, 18, 25, 26, 38
_NO_REPLY: Final = {2, 36, 42}  # FORGET, INTERRUPT, BATCH_FORGET
_IN: Final = struct.Struct("<IIQQIIII")  # length, opcode, unique, node, uid, gid, pid, -
_OUT: Final = struct.Struct("<IiQ")  # length, error, unique
_INIT_OUT: Final = struct.Struct("<IIIIHHIIHH32x")
_ATTR_OUT: Final = struct.Struct("<QIIQQQQQQIIIIIIIIII")
_OPEN_OUT: Final = struct.Struct("<QIi")
_FOPEN_DIRECT_IO: Final = 1  # every read comes here, none is answered from the page cache
_BUFFER: Final = 1 << 17
_MNT_DETACH: Final = 2
_WAKE: Final = 0.02


class Unavailable(Exception):  # noqa: N818 - a fact about the host, not a fault
    """No file system can be mounted here; the text says why."""


@dataclass
class HangingFile:
    """An existing regular file, covered by one with the same content whose reads can be held.

    Attributes:
        path: the file.
        held: reads that hang now or did: process id of the reader, and monotonic time at which its read came.
    """

    path: Path
    held: list[tuple[int, float]] = field(default_factory=list)
    _until: float = 0.0
    _waiting: list[int] = field(default_factory=list)
    _closed: bool = False

    def __enter__(self) -> HangingFile:  # noqa: PYI034 - Self came with Python 3.11
        self._content = self.path.read_bytes()
        try:
            self._fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"{DEVICE}: {error.strerror}") from error
        options = f"fd={self._fd},rootmode={stat.S_IFREG | 0o444:o},user_id=0,group_id=0,allow_other"
        libc = ctypes.CDLL(None, use_errno=True)
        target = os.fsencode(self.path)
        if libc.mount(b"ibmon-bench", target, b"fuse", 0, options.encode()):
            os.close(self._fd)
            raise Unavailable(f"mount of a FUSE file: {os.strerror(ctypes.get_errno())}")
        self._libc = libc
        self._thread = threading.Thread(target=self._serve, name="hanging-file", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._until = 0.0
        self._libc.umount2(os.fsencode(self.path), _MNT_DETACH)
        self._closed = True
        self._thread.join(5)
        os.close(self._fd)

    def hold(self, seconds: float) -> None:
        """Let each read from now on hang until this time is up."""
        self._until = time.monotonic() + seconds

    def release(self) -> None:
        """Let all reads go on."""
        self._until = 0.0

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while not self._closed:
            if poll.poll(_WAKE * 1e3):
                try:
                    request = os.read(self._fd, _BUFFER)
                except OSError as error:
                    if error.errno in {errno.ENOENT, errno.EINTR, errno.EAGAIN}:
                        continue
                    return  # ENODEV: unmounted
                self._answer(request)
            if self._waiting and time.monotonic() >= self._until:
                for unique in self._waiting:
                    self._reply(unique, self._content)
                self._waiting.clear()

    def _answer(self, request: bytes) -> None:
        _, opcode, unique, _, _, _, task, _ = _IN.unpack_from(request)
        if opcode in _NO_REPLY:
            return
        if opcode == _READ and time.monotonic() < self._until:
            self._waiting.append(unique)
            self.held.append((_process(task), time.monotonic()))
        elif opcode == _READ:
            offset = struct.unpack_from("<Q", request, _IN.size + 8)[0]
            self._reply(unique, self._content[offset:])
        elif opcode == _INIT:
            self._reply(unique, _INIT_OUT.pack(7, 31, 0, 0, 16, 12, 4096, 1, 1, 0))
        elif opcode == _GETATTR:
            size = len(self._content)
            mode = stat.S_IFREG | 0o444
            self._reply(unique, _ATTR_OUT.pack(3600, 0, 0, 1, size, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0))
        elif opcode == _OPEN:
            self._reply(unique, _OPEN_OUT.pack(1, _FOPEN_DIRECT_IO, 0))
        elif opcode in {_RELEASE, _FLUSH, _DESTROY}:
            self._reply(unique)
        else:
            self._reply(unique, error=errno.ENOSYS)

    def _reply(self, unique: int, data: bytes = b"", *, error: int = 0) -> None:
        try:
            os.write(self._fd, _OUT.pack(_OUT.size + len(data), -error, unique) + data)
        except OSError as failure:
            if failure.errno not in {errno.ENOENT, errno.ENODEV, errno.EPERM}:  # the reader was killed, or all is over
                raise


def _process(task: int) -> int:
    """The process of a thread, while it lives; 0 where that is not known."""
    try:
        lines = Path(f"/proc/{task}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("Tgid:"))
