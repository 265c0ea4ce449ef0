"""`ibmon release`: give back what ibmon owns on this node, or, through the fleet controller, on many."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from ibmon.cli.asking import ask, put, said
from ibmon.cli.common import Command, Settings, Trouble, as_duration
from ibmon.cli.reaching import connect, names, post, reaching

if TYPE_CHECKING:
    from ibmon.controlclient import Request

PATIENCE = 90.0
"""Seconds for the scheduler's answer: a release is three calls with a deadline each, and one may be out already."""

_LOOK = 0.2


@click.command("release", cls=Command)
@click.option("--dry-run", is_flag=True, help="Only say what would be given back.")
@click.option("--reason", metavar="TEXT", default="", help="Why, for the log.")
@click.option(
    "--node",
    "--nodes",
    "nodes",
    metavar="NODE,...",
    multiple=True,
    help="Through the controller: nodes, also patterns.",
)
@click.option("--rule", metavar="RULE", default="", help="Through the controller: drains for this rule.")
@click.option(
    "--since", metavar="TIME", callback=as_duration, help="Through the controller: drains no older than 30m, 2h."
)
@click.option("--all", "every", is_flag=True, help="Through the controller: every drain of ibmon.")
@reaching
@click.option("--json", "as_json", is_flag=True, help="What came of it as JSON.")
@click.pass_obj
def command(
    settings: Settings,
    dry_run: bool,
    reason: str,
    nodes: tuple[str, ...],
    rule: str,
    since: float | None,
    every: bool,
    url: str | None,
    token_file: str | None,
    as_json: bool,
) -> int:
    """Give nodes back to their scheduler: the drains that ibmon owns, though findings may stand.

    This node's drain, asked of its daemon; for root and members of group ibmon. With --controller, with a choice of
    nodes, or where [controller] url is configured and there is a token: of the fleet controller, which needs --node,
    --rule, --since or --all.

    Findings that stand are not acted on for action.override_ttl, unless they get worse. A drain in ibmon's words
    without a record (a lost state directory) is given back too; what somebody else drained never is. Nothing is
    written while a stop is in force or the mode is not drain.
    """
    chosen = names(nodes)
    narrowed = bool(chosen or rule or since or every)
    if narrowed or url or (token_file and settings.load().config.controller.url):
        if not narrowed:
            raise click.UsageError("say which drains: --node, --rule, --since or --all")
        body = {
            "nodes": chosen, "rule": rule, "seconds": since or 0.0, "all": every, "dry_run": dry_run, "reason": reason,
        }  # fmt: skip
        return post(connect(settings, url, token_file), "/v1/release", body, as_json=as_json)
    return _here(settings, dry_run=dry_run, reason=reason, as_json=as_json)


def _here(settings: Settings, *, dry_run: bool, reason: str, as_json: bool) -> int:
    """Ask this node's daemon."""
    from ibmon.controlclient import Request

    request = Request("release", reason=reason, dry_run=dry_run)
    if dry_run:
        return ask(settings, request, as_json=as_json)
    if as_json:
        return _told(_asked(settings, request))
    code = ask(settings, request, as_json=False)
    return code or _say(_outcome(settings))


def _asked(settings: Settings, request: Request) -> dict[str, Any]:
    reply = put(settings, request)
    return _outcome(settings) if reply.done else {"outcome": "refused", "code": None, "detail": reply.text}


def _outcome(settings: Settings) -> dict[str, Any]:
    """What the scheduler's answer was, when it has come."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        asked: dict[str, Any] | None = said(settings)["drain"].get("asked")
        if asked is not None and asked["outcome"] is not None:
            return asked
        time.sleep(_LOOK)
    raise Trouble(f"the scheduler has not answered within {PATIENCE:g} s; it is asked on: see 'ibmon status'")


def _told(asked: dict[str, Any]) -> int:
    click.echo(json.dumps({key: asked[key] for key in ("outcome", "code", "detail")}))
    return 0 if asked["outcome"] == "gone" else 1


def _say(asked: dict[str, Any]) -> int:
    detail = f": {asked['detail']}" if asked["detail"] else ""
    if asked["outcome"] == "gone":
        click.echo(f"ibmon's drain of this node does not stand any more{detail}")
        return 0
    code = f" ({asked['code']})" if asked["code"] else ""
    raise Trouble(f"not given back{code}{detail}; ask again when that is settled")
