"""axe-core's verdict on a page: contrast, names, roles, structure. From PyPI, inside axe-playwright-python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import pypi

if TYPE_CHECKING:
    from .chromium import Tab

PACKAGE = "axe-playwright-python==0.1.8"  # axe-core 4.12.1

_RUN = """
axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map((v) =>
  `${v.id} (${v.impact}): ${v.help}: ` + v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} ${n.failureSummary}`)))
"""


def violations(tab: Tab) -> list[str]:
    """What axe finds wrong, a line each. The tab must have been opened `trusting`: axe is none of the page's own."""
    [script] = pypi.installed(PACKAGE, alone=True).glob("*/axe.min.js")
    tab.evaluate(script.read_text(encoding="utf-8") + ";0")
    return list(tab.evaluate(_RUN))
