"""A fleet of simulated nodes in one process: each is the daemon's own engine and exposition on a scripted sysfs tree.

Owns playing the stories in virtual time that runs faster than the wall clock, and serving what each node says. Must
not: know who scrapes.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, final

import msgspec

from ibmon.configfile import loads
from ibmon.exporter.render import Renderer
from ibmon.exporter.selfmetrics import SelfMetrics
from ibmon.exporter.text import Format
from ibmon.recording import Frame, Header
from ibmon.runtime.replay import World

from . import controllertext
from .exposition import Expositions
from .stories import COMPATIBLE, STORIES, Story

if TYPE_CHECKING:
    from ibmon.snapshot import Snapshot

_TURN = 0.3
_TARGETS = ("am:alertmanager-0:9093", "hooks.example.org")


@final
class Node:
    """One node: `advance` plays its story up to a virtual time, `text` is what a scrape gets."""

    def __init__(self, name: str, story: Story, *, node_exporter: bool = False) -> None:
        self.name = name
        self.story = story
        self._frames = story.scenario.frames()
        self._next: Frame | None = next(self._frames)
        started = time.time() - story.ago - story.begin
        self.world = World(Header(wall=started), loads(story.scenario.toml()).config)
        self._renderer = Renderer(node_exporter=node_exporter)
        self._metrics = SelfMetrics(_TARGETS)
        self._body: bytes = b""
        self.advance(story.begin)

    def advance(self, until: float) -> None:
        """Let everything happen that is due."""
        while (due := self._due()) <= min(until, self.story.freezes):
            began = time.perf_counter()
            self.world.time = due
            while self._next is not None and self._next.t <= due:
                self.world.apply(self._next)
                if self._next.boot_id is not None:  # another daemon, which counts from zero
                    self._metrics = SelfMetrics(_TARGETS)
                self._next = next(self._frames, None)
            self.world.settle()
            self._metrics.tick(time.perf_counter() - began)
        self.world.time = max(self.world.time, until)
        if self.story.failing:
            self._fail()
        self._metrics.refresh(until)
        self._body = self._renderer.render(
            self._snapshot(), Format.TEXT, monotonic=until, self_metrics=self._metrics.text(Format.TEXT)
        )

    def _due(self) -> float:
        frame = self._next.t if self._next is not None else math.inf
        return min(frame, max(self.world.engine.next_due(), self.world.time))

    def _fail(self) -> None:
        """A full disk, and targets that do not listen."""
        self._metrics.save_failed()
        for target in _TARGETS:
            self._metrics.delivery(target, arrived=False)
            self._metrics.outbox(target, 2)

    def _snapshot(self) -> Snapshot:
        snapshot = msgspec.structs.replace(self.world.engine.snapshot(self.world.now()), node=self.name)
        return self.story.shows(snapshot)

    def text(self) -> bytes | None:
        """The exposition of the last turn; None where the node does not answer."""
        return None if self.story.silent else self._body


@final
class Fleet:
    """All stories, and a controller. A context manager; `address` serves ``/NAME/metrics``, `play` begins.

    `pace` is how many virtual seconds pass in one of the wall clock.
    """

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self.nodes = {name: Node(name, story, node_exporter=name == COMPATIBLE) for name, story in STORIES.items()}
        self.part = controllertext.LEADING
        self._controller = controllertext.Controller()
        self._began = time.monotonic()
        texts = {name: node.text for name, node in self.nodes.items()}
        self._server = Expositions({**texts, "controller": self._controllers_text})
        self.address = self._server.address
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self.trouble: list[BaseException] = []

    def __enter__(self) -> Fleet:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._server.__exit__()

    def play(self) -> None:
        """Begin all stories now."""
        self._began = time.monotonic()
        self._thread.start()

    @property
    def passed(self) -> float:
        """Virtual seconds since the begin."""
        return (time.monotonic() - self._began) * self._pace

    def _controllers_text(self) -> bytes:
        return self._controller.text(self.part, time.time())

    def _play(self) -> None:
        try:
            while not self._ended.wait(_TURN):
                for node in self.nodes.values():
                    node.advance(node.story.begin + self.passed)
        except BaseException as error:  # noqa: BLE001 - told to the test that waits
            self.trouble.append(error)
