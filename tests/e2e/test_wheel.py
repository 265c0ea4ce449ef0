"""An installed wheel has all that its commands need, without the checkout and without grafanalib."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as pip builds it and laid out as pip does, in a directory of its own."""
    directory = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, ROOT],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    [wheel] = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "site")
    return directory / "site"


def test_dashboards_and_rules_are_exported_from_it_as_they_are_committed(site: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ibmon", "dashboards", "export", "out", "--config", os.devnull],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for below, committed in (("grafana/dashboards", "dashboards"), ("prometheus", "deploy/prometheus")):
        for file in (tmp_path / "out" / below).iterdir():
            assert file.read_text() == (ROOT / committed / file.name).read_text(), file.name
