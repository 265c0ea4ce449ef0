"""docs/metrics.md says what the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibmon.controller.families import CONTROLLER_FAMILIES
from ibmon.exporter import families
from ibmon.exporter.metricsdoc import page

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_in_docs_is_the_one_that_the_tables_give():
    assert (DOCS / "metrics.md").read_text() == page(), "run: python -m ibmon.exporter.metricsdoc > docs/metrics.md"


ALL = [*families.SNAPSHOT_FAMILIES, *families.SELF_FAMILIES, *CONTROLLER_FAMILIES]


@pytest.mark.parametrize("family", ALL, ids=lambda f: f.name)
def test_every_family_has_one_row(family):
    assert page().count(f"| `{family.name}` | {family.kind.value} |") == 1


def test_pages_that_are_linked_exist():
    assert "(counters.md)" in page()
    assert (DOCS / "counters.md").exists()
