"""`ibmon events`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from ibmon.cli.common import Command, Settings, Trouble, as_duration, say

if TYPE_CHECKING:
    from ibmon.config import Config
    from ibmon.eventlog import Wanted
    from ibmon.store import EventRow

    # The newest wanted events, numbered above the first and at most the second, and the number of the newest of all.
    Source = Callable[[int, int], tuple[Sequence[EventRow], int]]

_POLL: Final = 1.0  # seconds between two looks of --follow
_PATH: Final = "/api/v1/events"
_LIMIT: Final = 100
_PAGE: Final = 1000  # what a daemon gives at most at a time


@click.command("events", cls=Command)
@click.option("--since", metavar="DURATION", callback=as_duration, help="Only the last 2h, 30m, 1d.")
@click.option("--rule", metavar="RULE", help="Only events of this rule.")
@click.option("--port", metavar="PORT", help="Only events of this port, or of a device and its ports.")
@click.option("--level", type=click.Choice(["info", "warning", "error"]), help="Only this level and above.")
@click.option("--limit", metavar="N", type=click.IntRange(1), help=f"The newest N; by default {_LIMIT}.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens from now on, until interrupted.")
@click.option("--url", metavar="URL", help="Ask a daemon over HTTP for its newest thousand: http://gpu-17:19315")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_obj
def command(
    settings: Settings,
    since: float | None,
    rule: str | None,
    port: str | None,
    level: str | None,
    limit: int | None,
    follow: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Show what has happened on this node, oldest first, in local time.

    From the daemon's history, whether it runs or not; who may not read that is answered by the running daemon.
    """
    from ibmon.cli.distant import address
    from ibmon.eventlog import Wanted

    wanted = Wanted(None if since is None else time.time() - since, rule, port, level)
    source = _api(address(url, _PATH), wanted) if url else _here(settings.load().config, wanted)
    show = _as_json if as_json else _as_line
    rows, last = source(0, limit or _LIMIT + 1)
    if limit is None and len(rows) > _LIMIT:
        say(f"older events are left out; --limit shows more than {_LIMIT}")
        rows = rows[1:]
    for row in rows:
        click.echo(show(row))
    if follow:
        _go_on(source, last, show)
    if not rows:
        _nothing(rule)


def _go_on(source: Source, last: int, show: Callable[[EventRow], str]) -> None:
    """Print what comes, until interrupted. A daemon that starts anew in between is waited for."""
    told = ""
    while True:
        time.sleep(_POLL)
        try:
            rows, last = source(last, _PAGE)
        except Trouble as error:
            if told != error.format_message():
                told = error.format_message()
                say(f"{told}; waiting for it")
            continue
        told = ""
        for row in rows:
            click.echo(show(row))


def _nothing(rule: str | None) -> None:
    from ibmon.health.rules import RULE_BY_ID
    from ibmon.nearest import nearest

    if rule is None or rule in RULE_BY_ID:
        say("no such event")
        return
    close = nearest(rule, RULE_BY_ID)
    say(f"no event of {rule}; there is no such rule now" + (f"; did you mean {close}?" if close else ""))


def _here(config: Config, wanted: Wanted) -> Source:
    """This node's history: its file, or where that cannot be read the daemon that keeps it."""
    from ibmon.store import FILE_NAME

    path = Path(config.state.directory) / FILE_NAME
    source = _file(path, wanted)
    try:
        source(0, 1)
    except Trouble as error:
        return _daemon_here(config, wanted, error.format_message())
    return source


def _file(path: Path, wanted: Wanted) -> Source:
    from ibmon.eventlog import EventLogError, read_events

    def read(after: int, limit: int) -> tuple[Sequence[EventRow], int]:
        try:
            newest = read_events(path, limit=1)
            last = newest[0].seq if newest else 0
            if last < after:  # the file was set aside, and its numbers began anew
                after = 0
            rows = read_events(path, wanted, after=after, limit=limit)
        except EventLogError as error:
            raise Trouble(str(error)) from error
        return rows, max(last, rows[-1].seq if rows else 0)

    return read


def _daemon_here(config: Config, wanted: Wanted, why: str) -> Source:
    """The daemon at the configured address; Trouble with both causes where it does not answer either."""
    from ibmon.exporter.address import parse_listen

    host, port = parse_listen(config.exporter.listen)
    if config.exporter.tls_cert or not port:
        raise Trouble(f"{why}; --url asks a daemon instead")
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what stands there
    source = _api(f"http://{f'[{host}]' if ':' in host else host}:{port}{_PATH}", wanted)
    try:
        source(0, 1)
    except Trouble as error:
        raise Trouble(f"{why}; and {error.format_message()}") from error
    return source


def _api(target: str, wanted: Wanted) -> Source:
    def read(after: int, limit: int) -> tuple[Sequence[EventRow], int]:
        rows, last = _asked(f"{target}?since={after}&limit={_PAGE}" if after else f"{target}?limit={_PAGE}")
        return [row for row in rows if wanted.takes(row)][-limit:], last

    return read


def _asked(url: str) -> tuple[list[EventRow], int]:
    from ibmon.cli import shapes
    from ibmon.cli.distant import fetch
    from ibmon.store import EventRow

    try:
        page = msgspec.json.decode(fetch(url), type=shapes.Events)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Trouble(f"{url.partition('?')[0]} gives no events; is that an ibmon?") from error
    return [EventRow(*msgspec.structs.astuple(row)) for row in page.events], page.next


def _as_line(row: EventRow) -> str:
    from ibmon.runtime.logs import value

    fields = " ".join(f"{name}={value(item)}" for name, item in row.fields.items())
    return f"{_local(row.at)}  {value(row.level):<7}  {value(row.event):<16} {fields}".rstrip()


def _as_json(row: EventRow) -> str:
    fields: dict[str, Any] = {**row._asdict(), "time": _rfc3339(row.at)}
    return json.dumps({name: fields[name] for name in ("seq", "at", "time", "level", "event", "fields")})


def _local(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
