"""What a measurement gives: tables for people, and verdicts against the targets. Values and their text only."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

TIMES = "\N{MULTIPLICATION SIGN}"
"""The unit of a ratio."""

_WIDTH = 120


@dataclass(frozen=True)
class Target:
    """One number that was promised, and what was measured. None: it could not be measured here."""

    what: str
    measured: float | None
    limit: float
    unit: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the promise is kept; None where nothing was measured."""
        return None if self.measured is None else self.measured <= self.limit

    def cells(self) -> tuple[str, ...]:
        """The row of the table of targets."""
        met = {None: "not measured", True: "met", False: "**missed**"}[self.met]
        measured = "-" if self.measured is None else quantity(self.measured, self.unit)
        return self.what, measured, f"at most {quantity(self.limit, self.unit)}", met


@dataclass(frozen=True)
class Table:
    """Rows under a head; the first column is text, the others are numbers."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def markdown(self) -> str:
        """The table in Markdown, columns padded so that it is readable as plain text."""
        widths = [max(len(row[i]) for row in (self.head, *self.rows)) for i in range(len(self.head))]
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        return "\n".join(_line(row, widths) for row in (self.head, rule, *self.rows))


@dataclass(frozen=True)
class Figure:
    """One measurement: how it was made, what came out, and what was promised."""

    title: str
    method: str
    tables: Sequence[Table] = field(default=())
    targets: Sequence[Target] = field(default=())
    remark: str = ""

    def markdown(self) -> str:
        """The section of the page."""
        parts = [f"## {self.title}", fill(self.method), *(table.markdown() for table in self.tables), fill(self.remark)]
        return "\n\n".join(part for part in parts if part)


def targets_table(figures: Iterable[Figure]) -> Table:
    """All promises of some figures in one table."""
    rows = [target.cells() for figure in figures for target in figure.targets]
    return Table(("figure", "measured", "target", ""), rows)


def quantity(value: float, unit: str = "") -> str:
    """A number with three significant digits, and its unit where it has one."""
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text if not unit else f"{text}{'' if unit == TIMES else ' '}{unit}"


def fill(paragraph: str) -> str:
    """A paragraph in lines of the page's width."""
    return textwrap.fill(paragraph, _WIDTH, break_long_words=False, break_on_hyphens=False)


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that `share` (0…1) of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * len(ordered) * 1000) // 1000) - 1))]


def median(values: Iterable[float]) -> float:
    """The middle value."""
    return percentile(values, 0.5)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join([first, *rest])} |"
