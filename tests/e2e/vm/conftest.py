"""Fixtures: the built guest, plain and with systemd."""

from __future__ import annotations

import pytest
import vmimage
from vmguest import Guest


@pytest.fixture(scope="session")
def image() -> vmimage.Image:
    """The guest's files, built once and kept in the cache."""
    return vmimage.ensure_image()


@pytest.fixture(scope="session")
def plain_guest(image: vmimage.Image) -> Guest:
    """Without systemd and udevd; this machine's files are below /host."""
    return Guest(image, host_root=True)


@pytest.fixture(scope="session")
def systemd_guest(image: vmimage.Image) -> Guest:
    """With systemd and udevd; this machine's files are below /host."""
    return Guest(image, systemd=True, host_root=True)
