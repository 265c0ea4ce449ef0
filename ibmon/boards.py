"""What `ibmon dashboards export` writes: dashboards, rules for Prometheus, and how Grafana is told of the dashboards.

Owns where the files lie and which of them ibmon may overwrite. What they say is made elsewhere: dashboards in
`dashboards/` of the checkout, from where the wheel takes them, and rules in `ibmon.promrules`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ibmon.config import Config
from ibmon.promrules import files, text

NAMES: Final = ("ibmon-fleet", "ibmon-node", "ibmon-incident", "ibmon-self")
"""The dashboards, by uid; the file is called so too."""

DASHBOARDS: Final = "grafana/dashboards"
PROVIDER: Final = "grafana/provisioning/ibmon.yaml"
RULES: Final = "prometheus"

_PROVIDER: Final = """\
{mark}. Put it below provisioning/dashboards/ of Grafana's configuration.
apiVersion: 1
providers:
- name: ibmon
  folder: ibmon
  type: file
  updateIntervalSeconds: 60
  allowUiUpdates: false
  options:
    path: {path}
"""


class ExportError(Exception):
    """The files cannot be written; the text is one line that says which, why and what to do."""


class Exported(NamedTuple):
    """What was written, and what was removed because it must not be there any more."""

    written: tuple[Path, ...]
    removed: tuple[Path, ...]


def source() -> Path:
    """The directory of the dashboards' JSON: in the installed package, else in the checkout it runs from.

    Raises:
        ExportError: neither has them.
    """
    here = Path(__file__).resolve()
    for place in (here.with_name("grafana"), here.parents[1] / "dashboards"):
        if (place / f"{NAMES[0]}.json").is_file():
            return place
    raise ExportError("this installation came without its dashboards; install ibmon from its wheel or its checkout")


def export(directory: Path, config: Config, *, push: bool, runbook_url: str) -> Exported:
    """Write everything below a directory, or nothing where a file of somebody else is in the way.

    Args:
        directory: made if need be; in it are overwritten only files that ibmon wrote.
        config: whose limits the rules tell.
        push: nodes tell Alertmanager of their findings themselves, so that no rule may.
        runbook_url: the directory of the runbook.

    Raises:
        ExportError: a file cannot be written, or is somebody else's.
    """
    rules = files.contents(config, push=push, runbook_url=runbook_url)
    content = {
        **{f"{DASHBOARDS}/{name}.json": (source() / f"{name}.json").read_text(encoding="utf-8") for name in NAMES},
        PROVIDER: _PROVIDER.format(mark=text.MARK, path=json.dumps(str((directory / DASHBOARDS).resolve()))),
        **{f"{RULES}/{name}": rule for name, rule in rules.items()},
    }
    unwanted = [directory / RULES / name for name in files.FINDING_FILES if name not in rules]
    stale = [file for file in unwanted if file.exists()]
    _refuse([directory / name for name in content] + stale)
    try:
        written = tuple(_written(directory, content))
        for file in stale:
            file.unlink()
    except OSError as error:
        raise ExportError(f"{error.filename}: {error.strerror}; name another directory, or make it writable") from error
    return Exported(written, tuple(stale))


def _refuse(targets: Iterable[Path]) -> None:
    """Raise ExportError if one of these files is there and not ours."""
    for file in targets:
        try:
            found = file.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ExportError(f"{file}: {error.strerror}; move it away, or name another directory") from error
        if not (_uid(found) == file.stem if file.suffix == ".json" else found.startswith(text.MARK)):
            raise ExportError(f"{file} was not written by ibmon; move it away, or name another directory")


def _uid(content: str) -> str | None:
    try:
        document = json.loads(content)
    except ValueError:
        return None
    return document.get("uid") if isinstance(document, dict) else None


def _written(directory: Path, content: Mapping[str, str]) -> Iterable[Path]:
    for name, one in content.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(one, encoding="utf-8")
        yield file
