"""Where one thread of the reader pool gets its answers: the protocol, and the source that reads in this process.

The other one, which asks a process of its own, is `ibmon/sysfs/process.py`. Neither decides what is read when.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ibmon.model import Device, Listing, Reading
from ibmon.ports import Clock, Tree
from ibmon.sysfs import danger, discover
from ibmon.sysfs.columns import Statistics
from ibmon.sysfs.reader import Reader, reader


class Names(NamedTuple):
    """Which devices are there? What the parts mean: `ibmon.sysfs.discover.list_devices`."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    functions: tuple[str, ...]
    known: tuple[str, ...]


Columns: TypeAlias = tuple[Device, tuple[int, ...]]
"""What do these columns of a device hold?"""

Question: TypeAlias = Names | Columns
Answer: TypeAlias = Listing | Reading


class SourceError(Exception):
    """There is no answer, because whoever should read failed; why, was logged where it was seen."""


class Source(Protocol):
    """Answers in the thread that asks. Every answer may take for ever.

    `forget`, `retract` and `pid` may be used from other threads at any time.
    """

    @property
    def pid(self) -> int | None:
        """The process that reads; None before it has one."""
        ...

    def open(self) -> None:
        """Get ready, however long that takes: the first call, in the thread that asks."""
        ...

    def discover(self, name: str, generation: int) -> Device | None:
        """The static facts of a device, or None where there is none. Raises SourceError."""
        ...

    def answers(self, questions: Sequence[Question]) -> Iterator[Answer | None]:
        """What is so now, question by question; None where there is no answer, as with SourceError.

        A source may be ahead of the answers that were taken.
        """
        ...

    def ask(self, questions: Sequence[Question]) -> bool:
        """Ask without waiting for an answer; False where that cannot be done, and nothing was asked."""
        ...

    def arrived(self) -> list[Answer | None]:
        """Those of the first answers to what was asked that are here by now; None for one that could not be given."""
        ...

    def rest(self) -> Iterator[Answer | None]:
        """The answers to what was asked that had not arrived yet; they are waited for."""
        ...

    def retract(self) -> None:
        """Begin nothing more of what was asked; the answer that is being worked on is still wanted."""
        ...

    def forget(self, name: str) -> None:
        """A device has gone: close what is open of it."""
        ...

    def close(self) -> None:
        """Give everything back; the last call, in the thread that asked."""
        ...


class LocalSource:
    """Reads in this process. A read that hangs in the kernel keeps the whole process from ending.

    Args:
        pid: this process.
        tree: the sysfs root.
        clock: time for the readings.
        platform: the kernel that answers, for what is dangerous to read.
        ethtool: where statistics of network interfaces come from.
    """

    def __init__(
        self,
        pid: int,
        tree: Tree,
        clock: Clock,
        *,
        platform: danger.Platform | None = None,
        ethtool: Statistics | None = None,
    ) -> None:
        self.pid = pid
        self._tree = tree
        self._clock = clock
        self._platform = platform or danger.Platform()
        self._ethtool = ethtool
        self.files: Reader = reader(tree, clock, ethtool=ethtool)

    def open(self) -> None:
        """It is ready."""

    def discover(self, name: str, generation: int) -> Device | None:
        """The static facts of a device, or None where there is none."""
        found = discover.discover(self._tree, name, generation, platform=self._platform, ethtool=self._ethtool)
        self.files.forget(name)
        return found

    def answers(self, questions: Sequence[Question]) -> Iterator[Answer]:
        """What is so now, each found out when it is taken. An error of ours leaves it, and the next goes on."""
        return map(self.answer, questions)  # a generator would end at the first error

    def answer(self, question: Question) -> Answer:
        """What is so now."""
        if isinstance(question, Names):
            include, exclude, functions, known = question
            return discover.list_devices(self._tree, include, exclude, self._clock.now(), functions, known=known)
        return self.files.read(*question)

    def ask(self, questions: Sequence[Question]) -> bool:  # noqa: ARG002 - no question can be asked so
        """Whoever asks would wait: a read is done where it is asked for."""
        return False

    def arrived(self) -> list[Answer | None]:
        """Nothing was asked without being waited for."""
        return []

    def rest(self) -> Iterator[Answer | None]:
        """Nothing was asked without being waited for."""
        return iter(())

    def retract(self) -> None:
        """Nothing is begun before its answer is taken."""

    def forget(self, name: str) -> None:
        """Close what is open of a device, or leave that to the thread that is in it."""
        self.files.forget(name)

    def close(self) -> None:
        """Close all files."""
        self.files.close()
