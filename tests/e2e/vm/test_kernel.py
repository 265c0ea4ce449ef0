"""ibmon on a real kernel: in a guest without systemd and udevd, and as a service under systemd."""

from __future__ import annotations

import pytest
import vmchecks


@pytest.fixture(scope="module")
def kernel(plain_guest, tmp_path_factory) -> vmchecks.Results:
    return vmchecks.run(plain_guest, "kernel.py", tmp_path_factory.mktemp("kernel"), timeout=400)


@pytest.fixture(scope="module")
def verdicts(plain_guest, tmp_path_factory) -> vmchecks.Results:
    return vmchecks.run(plain_guest, "verdicts.py", tmp_path_factory.mktemp("verdicts"), timeout=300)


@pytest.fixture(scope="module")
def service(systemd_guest, tmp_path_factory) -> vmchecks.Results:
    return vmchecks.run(systemd_guest, "service.py", tmp_path_factory.mktemp("service"), timeout=400)


@pytest.mark.parametrize("name", vmchecks.names("kernel.py"))
def test_kernel(kernel, name):
    kernel.require(name)


@pytest.mark.parametrize("name", vmchecks.names("verdicts.py"))
def test_verdict(verdicts, name):
    verdicts.require(name)


@pytest.mark.parametrize("name", vmchecks.names("service.py"))
def test_service(service, name):
    service.require(name)
