"""The files of `deploy/prometheus/`: ``python -m ibmon.promrules.files deploy/prometheus`` writes them.

Owns which rules stand in which file. `ibmon dashboards export` writes the same for a site's own configuration.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ibmon.config import Config
from ibmon.promrules import findings, fleet, text
from ibmon.promrules.table import RUNBOOK_URL

FINDING_FILES: Final = ("ibmon-findings.rules.yml", "prometheusrule-findings.yaml")
FLEET_FILES: Final = ("ibmon-fleet.rules.yml", "prometheusrule-fleet.yaml")


def contents(config: Config, *, push: bool, runbook_url: str = RUNBOOK_URL) -> Mapping[str, str]:
    """Text by file name. With `push` (nodes tell Alertmanager themselves) there are no alerts of findings."""
    return dict(_contents(config, push=push, runbook_url=runbook_url))


def _contents(config: Config, *, push: bool, runbook_url: str) -> Iterator[tuple[str, str]]:
    groups = [(FLEET_FILES, fleet.group())]
    if not push:
        groups.append((FINDING_FILES, findings.group(config)))
    for (rules, manifest), group in groups:
        yield rules, text.rule_file(group, runbook_url=runbook_url)
        yield manifest, text.manifest(group, runbook_url=runbook_url)


def main(arguments: Sequence[str]) -> int:
    """Write the files of the defaults into a directory."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m ibmon.promrules.files DIR\n")
        return 2
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in contents(Config(), push=False).items():
        (directory / name).write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
