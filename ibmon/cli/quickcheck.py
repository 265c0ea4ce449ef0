"""`ibmon check` as hooks call it: a few options, one file, one line, one exit code, in a few hundredths of a second.

Loads nothing but the standard library. Whatever it does not understand at once (help, mistakes, a look at the hardware)
it leaves to the command in `ibmon/cli/check.py`, which answers by the same functions.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ibmon.cli import verdictfile
from ibmon.cli.verdictfile import Verdict

FORMATS: Final = ("text", "nagios", "npd")
NPD_LENGTH: Final = 80  # node-problem-detector cuts a plugin's output there (max_output_length)


class Options(NamedTuple):
    """How the verdict is asked for."""

    strict: bool = False
    gate: bool = False
    format: str = "text"
    as_json: bool = False


class Answer(NamedTuple):
    """What is printed, and the exit code."""

    line: str
    code: int


def run(arguments: Sequence[str]) -> int | None:
    """Answer a command line of `ibmon check`; None where that takes more than this module has."""
    asked = parse(arguments)
    if asked is None:
        return None
    options, config = asked
    directory = verdictfile.DIRECTORY if config is None else verdictfile.directory_of(config)
    return None if directory is None else say(answer(options, verdictfile.read(directory)))


def parse(arguments: Sequence[str]) -> tuple[Options, Path | None] | None:
    """The options and the file of ``--config``, if this is a plain call of `check`; else None."""
    found: dict[str, Any] = {}
    config, command = None, False
    left = list(arguments)
    while left:
        word, equals, value = left.pop(0).partition("=")
        if not command and word == "check" and not equals:
            command = True
        elif word in ("--config", "--format"):
            if not equals and not left:
                return None
            value = value if equals else left.pop(0)
            if word == "--config":
                config = Path(value)
            elif command and value in FORMATS:
                found["format"] = value
            else:
                return None
        elif command and not equals and word in ("--strict", "--gate", "--json"):
            found["as_json" if word == "--json" else word[2:]] = True
        else:
            return None
    options = Options(**found)
    return (options, config) if command and contradiction(options) is None else None


def contradiction(options: Options) -> str | None:
    """What of the options excludes each other; None where they agree."""
    if options.gate and options != Options(gate=True):
        return "--gate has its own answer: give it without --strict, --format and --json"
    if options.as_json and options.format != "text":
        return "--json and --format exclude each other"
    return None


def answer(options: Options, verdict: Verdict) -> Answer:
    """The line and the exit code for a verdict."""
    if options.gate:
        return _gate(verdict)
    if options.as_json:
        return Answer(_json(verdict), _code(options, verdict))
    return _FORMATS[options.format](options, verdict)


def say(said: Answer) -> int:
    """Print the answer and return its code, which stands whether anybody could read the line or not."""
    try:
        if sys.stdout is not None:
            sys.stdout.write(f"{said.line}\n")
            sys.stdout.flush()
    except (OSError, ValueError):
        # Else the interpreter's last flush fails and makes an exit code of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return said.code


def _gate(verdict: Verdict) -> Answer:
    """Refuse a job only while our own drain of this node is in force; a gate that does not know lets it pass.

    A drain that is on record all the same (the mode was lowered, say) is named: who removes ibmon must give it back.
    """
    document = verdict.document or {}
    drain = document.get("drain")
    drain = drain if isinstance(drain, dict) else {}
    owned = drain.get("owned")
    owned = owned if isinstance(owned, dict) else {}
    if document.get("mode") == "drain" and owned.get("held") is True and not drain.get("overridden"):
        return Answer(_plain(f"refuse: {owned.get('reason')}"), 1)
    more = (
        "; no word of a drain" if verdict.document is None else f"; on record: {owned.get('reason')}" if owned else ""
    )
    return Answer(_plain(f"pass: {_sentence(verdict)}{more}"), 0)


def _text(options: Options, verdict: Verdict) -> Answer:
    return Answer(_plain(f"{verdict.node} is {_sentence(verdict)}"), _code(options, verdict))


def _code(options: Options, verdict: Verdict) -> int:
    if verdict.fitness == "unfit":
        return 1
    return 2 if options.strict and verdict.fitness == "unknown" else 0


def _nagios(_: Options, verdict: Verdict) -> Answer:
    """As the guidelines for monitoring plugins have it: the status line, a bar, and performance data."""
    word, code = {"fit": ("OK", 0), "watch": ("WARNING", 1), "unfit": ("CRITICAL", 2)}.get(
        verdict.fitness, ("UNKNOWN", 3)
    )
    line = _plain(f"IBMON {word} - {verdict.node} is {_sentence(verdict)}").replace("|", "/")
    return Answer(f"{line} | {data}" if (data := _performance(verdict)) else line, code)


def _performance(verdict: Verdict) -> str:
    if verdict.document is None or verdict.age is None:
        return ""
    expected = [port for port in verdict.rows("ports") if port.get("expected")]
    good = sum(port.get("health") == "ok" for port in expected)
    findings = verdict.rows("findings")
    critical = sum(finding.get("severity") == "critical" for finding in findings)
    total = len(expected)
    return (
        f"ports={total};;;0 ports_ok={good};;;0;{total} findings={len(findings)};;;0 critical={critical};;;0 "
        f"age={verdict.age:.1f}s;;{verdictfile.MAX_AGE:g};0"
    )


def _npd(_: Options, verdict: Verdict) -> Answer:
    """As node-problem-detector's custom plugins answer: 0 well, 1 problem, anything else unknown."""
    code = {"fit": 0, "watch": 0, "unfit": 1}.get(verdict.fitness, 2)
    line = _plain(_sentence(verdict))
    return Answer(line if len(line) <= NPD_LENGTH else f"{line[: NPD_LENGTH - 3]}...", code)


_FORMATS: Final[dict[str, Callable[[Options, Verdict], Answer]]] = {"text": _text, "nagios": _nagios, "npd": _npd}


def _json(verdict: Verdict) -> str:
    document = verdict.document or {}
    return json.dumps(
        {
            "node": document.get("node"),
            "fitness": verdict.fitness,
            "why": verdict.why,
            "mode": document.get("mode"),
            "age_seconds": None if verdict.age is None else round(verdict.age, 3),
            "findings": verdict.rows("findings"),
        }
    )


def _sentence(verdict: Verdict) -> str:
    return f"{verdict.fitness}: {verdict.why}" if verdict.why else verdict.fitness


def _plain(text: str) -> str:
    """One line of printable ASCII."""
    return "".join(c if " " <= c <= "~" else "?" for c in " ".join(text.split()))
