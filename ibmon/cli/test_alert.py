"""`ibmon test-alert`."""

from __future__ import annotations

import json

import click

from ibmon.cli.common import Command, Failure, Settings


@click.command("test-alert", cls=Command)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line and target.")
@click.pass_obj
def command(settings: Settings, as_json: bool) -> int:
    """Send one test to each Alertmanager and webhook, and print what came back.

    Exit 1 when one of them did not take it. The alert is called IbmonTest and ends by itself after five minutes; a
    webhook gets a message of type ibmon.test. The mode does not matter.
    """
    config = settings.load().config
    if not config.alertmanager and not config.webhook:
        raise Failure("there is no [[alertmanager]] and no [[webhook]] in the configuration to send a test to")
    from ibmon.alert.trial import attempts
    from ibmon.runtime.host import node_name

    failed = False
    for outcome in attempts(config, node_name(config.node.name)):
        failed |= not outcome.delivered
        if as_json:
            click.echo(json.dumps(outcome._asdict()))
            continue
        said = "no answer" if outcome.status is None else f"HTTP {outcome.status}"
        told = f"{outcome.target}: {'ok' if outcome.delivered else 'FAILED'}, {said} after {outcome.seconds:.2f} s"
        click.echo(told + (f": {outcome.words}" if outcome.words else ""))
    return int(failed)
