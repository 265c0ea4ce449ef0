"""What the commands share that ask a fleet controller: its address, the token, and how its answer is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ibmon.cli.common import Failure, Settings, Trouble, say

if TYPE_CHECKING:
    from ibmon.config import Config
    from ibmon.controller.client import Controller

TOKEN_VARIABLE = "IBMON_TOKEN_FILE"  # noqa: S105 - the name of a variable

_F = TypeVar("_F", bound=Callable[..., Any])

_URL = click.option("--controller", "url", metavar="URL", help="The controller; by default [controller] url.")
_TOKEN = click.option(
    "--token-file",
    metavar="FILE",
    envvar=TOKEN_VARIABLE,
    help=f"The file with your token; by default what {TOKEN_VARIABLE} names.",
)
as_json_option = click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")


def reaching(function: _F) -> _F:
    """The options of a command that asks a controller: `url` and `token_file`."""
    return _URL(_TOKEN(function))


def connect(settings: Settings, url: str | None, token_file: str | None) -> Controller:
    """The controller that was named, or is configured, or runs on this host."""
    from ibmon.configvalues import url as checked
    from ibmon.controller.client import Controller, ControllerError

    config = settings.load().config
    try:
        address = checked(url) if url else _configured(config)
    except ValueError as error:
        raise Failure(f"--controller: {error}") from None
    try:
        controller = Controller(address, token_file or "", config.controller.ca)
    except ControllerError as error:
        raise Failure(str(error)) from None
    if controller.plain:
        say("your token goes over the network in plain text; give the controller a certificate and use https")
    return controller


def _configured(config: Config) -> str:
    """[controller] url, else the address at which a controller on this host would listen."""
    from ibmon.exporter.address import Address, parse_listen

    controller = config.controller
    if controller.url:
        return controller.url
    host, port = parse_listen(controller.listen, "controller.listen")
    scheme = "https" if controller.tls_cert else "http"
    return f"{scheme}://{Address(host if host not in {'', '::', '0.0.0.0'} else 'localhost', port)}"  # noqa: S104


def get(controller: Controller, path: str, shape: Any) -> Any:
    """A document of the controller, of the shape that the caller can show."""
    from ibmon.controller.client import ControllerError

    try:
        return _whole(controller.get(path), shape, path)
    except ControllerError as error:
        raise Trouble(str(error)) from None


def _whole(document: Any, shape: Any, path: str) -> Any:
    from ibmon.cli import shapes

    try:
        shapes.fit(document, shape)
    except ValueError as error:
        raise Trouble(f"{path} answers what this ibmon cannot show: {error}; is that a controller?") from error
    return document


def post(controller: Controller, path: str, body: dict[str, Any], *, as_json: bool) -> int:
    """Ask, print what came of it and to which nodes."""
    from ibmon.cli.shapes import Told
    from ibmon.controller.client import ControllerError

    try:
        told = _whole(controller.post(path, body), Told, path)
    except ControllerError as error:
        raise Trouble(str(error)) from None
    if as_json:
        click.echo(json.dumps(told))
        return 0
    click.echo(told["text"])
    for node in told["nodes"]:
        click.echo(f"  {node}")
    return 0


def names(listed: tuple[str, ...]) -> list[str]:
    """Names or patterns between commas and in repeated options."""
    return [name.strip() for text in listed for name in text.split(",") if name.strip()]
