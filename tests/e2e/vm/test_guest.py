"""The guest itself, and the facts of the kernel that the design rests on. No ibmon is involved."""

from __future__ import annotations

import pytest
import vmchecks
from vmguest import Guest, GuestError


@pytest.fixture(scope="module")
def facts(plain_guest, tmp_path_factory) -> vmchecks.Results:
    return vmchecks.run(plain_guest, "facts.py", tmp_path_factory.mktemp("facts"), timeout=180)


@pytest.mark.parametrize("name", vmchecks.names("facts.py"))
def test_kernel(facts, name):
    facts.require(name)


def test_a_guest_that_does_not_end_is_an_error(image, tmp_path):
    with pytest.raises(GuestError, match=r"(?s)did not end within 5 s.*end of its console"):
        Guest(image).run(["sleep", "600"], tmp_path, timeout=5)


def test_output_and_exit_code_come_back(image, tmp_path):
    result = Guest(image).run(["bash", "-c", "echo out; echo err >&2; touch /out/file; exit 7"], tmp_path)
    assert (result.exit_code, result.output) == (7, "out\nerr\n")
    assert (tmp_path / "file").exists()
