"""The least that a daemon of ibmon's shape does in Python: it reads, serves and writes, and understands nothing.

A program of its own, so that its CPU is accounted alone: `python -m bench.bareloop FILES DIRECTORY PORT`. FILES holds a
line `TIER PATH` for each file. A process reads the tiers at ibmon's default intervals on kept descriptors; the other
fetches what was read, replaces a file of the size of the verdict, and serves the same bytes to every scrape.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ibmon.config import SamplingConfig

LOOPBACK = "127.0.0.1"
EXPOSITION = 12_000
"""Bytes of a compressed answer, and of the verdict file below, at the size of a node."""
VERDICT = 9_000
_GATHER = 0.02
_LENGTH = struct.Struct("=I")


def read(connection: socket.socket, tiers: list[list[int]]) -> None:
    """Answer each message, which names the tiers to read, with what their files hold."""
    while message := connection.recv(64):
        found = [os.pread(descriptor, 64, 0) for tier in message for descriptor in tiers[tier]]
        whole = b"".join(found)
        connection.sendall(_LENGTH.pack(len(whole)) + whole)


class Handler(BaseHTTPRequestHandler):
    """Answers every request with the same bytes."""

    protocol_version = "HTTP/1.1"
    body = os.urandom(EXPOSITION)

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's signature
        """Log nothing."""


def run(files: Path, directory: Path, port: int) -> None:
    """Do it until the process is ended."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        tiers: list[list[int]] = [[], [], []]
        for line in files.read_text().splitlines():
            tier, path = line.split(" ", 1)
            tiers[int(tier)].append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        read(theirs, tiers)
        os._exit(0)
    theirs.close()
    server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    threading.Thread(target=server.serve_forever, args=(60.0,), daemon=True).start()
    sampling = SamplingConfig()
    intervals = (sampling.state_interval, sampling.counter_interval, sampling.slow_interval)
    due = [time.monotonic()] * len(intervals)
    verdict, beside, document = directory / "verdict", directory / "verdict.new", os.urandom(VERDICT)
    while True:
        time.sleep(max(0.0, min(due) - time.monotonic()))
        wanted = [tier for tier, at in enumerate(due) if at <= time.monotonic()]
        for tier in wanted:
            due[tier] += intervals[tier]
        ours.sendall(bytes(wanted))
        time.sleep(_GATHER)
        left = _LENGTH.unpack(ours.recv(_LENGTH.size))[0]
        while left:
            left -= len(ours.recv(left))
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        os.write(descriptor, document)
        os.close(descriptor)
        os.replace(beside, verdict)  # noqa: PTH105 - no Path object for each turn


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
