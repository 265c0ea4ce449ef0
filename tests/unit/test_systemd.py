"""The unit and its drop-ins: systemd understands every line, and the daemon can reach no more than it needs."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ibmon.controller import assembly

SYSTEMD = Path(__file__).parents[2] / "systemd"
DROP_INS = sorted(path.name for path in (SYSTEMD / "drop-ins").glob("*.conf"))
MOST_EXPOSED = 2.0
CONTROLLER = "ibmon-controller.service"


@pytest.fixture
def analyze():
    """Runs systemd-analyze, which needs no running systemd; where it is absent a CI run fails."""
    program = shutil.which("systemd-analyze")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("systemd-analyze is missing: install the package systemd")
        pytest.skip("systemd-analyze is not installed")

    def run(*arguments):
        environment = {**os.environ, "SYSTEMD_COLORS": "0", "LC_ALL": "C.UTF-8"}
        return subprocess.run(
            [program, *arguments], check=False, capture_output=True, text=True, timeout=50, env=environment
        )

    return run


@pytest.fixture
def unit(tmp_path):
    """A copy of the unit whose command exists, with the drop-ins that are named."""

    def copy(*drop_ins, name="ibmon.service"):
        text = (SYSTEMD / name).read_text()
        target = tmp_path / name
        target.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={shutil.which('true')}", text, flags=re.MULTILINE))
        (tmp_path / "ibmon.service.d").mkdir(exist_ok=True)
        for drop_in in drop_ins:
            shutil.copy(SYSTEMD / "drop-ins" / drop_in, tmp_path / "ibmon.service.d")
        return target

    return copy


@pytest.mark.parametrize("drop_ins", [(), *((name,) for name in DROP_INS), tuple(DROP_INS)])
def test_systemd_understands_every_line(analyze, unit, drop_ins):
    done = analyze("verify", "--man=no", str(unit(*drop_ins)))
    assert (done.returncode, done.stderr) == (0, "")  # a key it does not know is only a warning, with exit code 0


def test_a_line_that_systemd_does_not_know_would_be_seen(analyze, unit):
    path = unit()
    path.write_text(path.read_text().replace("ProtectHome=yes", "ProtectHoem=yes"))
    assert "ProtectHoem" in analyze("verify", "--man=no", str(path)).stderr


@pytest.mark.parametrize("drop_ins", [(), *((name,) for name in DROP_INS), tuple(DROP_INS)])
def test_the_unit_is_hardly_exposed(analyze, unit, drop_ins):
    done = analyze("security", "--offline=true", "--no-pager", str(unit(*drop_ins)))
    level = re.search(r"Overall exposure level for ibmon\.service: ([\d.]+)", done.stdout)
    assert level, done.stderr
    assert float(level[1]) <= MOST_EXPOSED


def test_the_controllers_unit_is_as_sound(analyze, unit):
    target = str(unit(name=CONTROLLER))
    verified = analyze("verify", "--man=no", target)
    assert (verified.returncode, verified.stderr) == (0, "")
    done = analyze("security", "--offline=true", "--no-pager", target)
    level = re.search(r"Overall exposure level for ibmon-controller\.service: ([\d.]+)", done.stdout)
    assert level, done.stderr
    assert float(level[1]) <= MOST_EXPOSED


def test_the_controller_keeps_its_state_where_its_unit_makes_room():
    assert dict(settings(CONTROLLER))["StateDirectory"] == Path(assembly.DIRECTORY).name


def settings(name):
    lines = (SYSTEMD / name).read_text().splitlines()
    return [tuple(line.split("=", 1)) for line in lines if line and line[0] not in "#;["]


@pytest.mark.parametrize(
    "line",
    [
        "Type=notify",
        "User=ibmon",
        "StateDirectory=ibmon",
        "RuntimeDirectory=ibmon",
        "RuntimeDirectoryPreserve=restart",
        "LimitNOFILE=65536",
        "Nice=10",
        "OOMScoreAdjust=500",
        "MemoryMax=128M",
        "WantedBy=multi-user.target",
        "ExecReload=/bin/kill -HUP $MAINPID",
    ],
)
def test_the_unit_says(line):
    assert tuple(line.split("=", 1)) in settings("ibmon.service")


def test_the_unit_comes_after_the_rdma_target_and_does_not_need_it():
    found = settings("ibmon.service")
    assert "rdma-hw.target" in dict(found)["After"].split()
    assert not {"Requires", "BindsTo", "Requisite"} & {key for key, _ in found}


def test_a_successor_starts_within_ten_seconds_of_a_hanging_stop_and_waits_for_no_reader():
    # systemd: stop-sigterm and stop-sigkill, each for TimeoutStopSec (core/service.c). For what is left of the control
    # group it waits as long twice more, unless only the main process is its business.
    found = dict(settings("ibmon.service"))
    stop, again = (float(found[key].removesuffix("s")) for key in ("TimeoutStopSec", "RestartSec"))
    assert found["KillMode"] == "process"
    assert 2 * stop + again < 10
    assert stop >= 2  # the time that a clean stop is given


def test_a_configuration_that_cannot_be_used_is_not_tried_again():
    found = dict(settings("ibmon.service"))
    assert (found["Restart"], found["RestartPreventExitStatus"]) == ("on-failure", "2")


def test_the_kernel_log_is_the_only_device_that_a_drop_in_opens():
    opened = [(name, value) for name in DROP_INS for key, value in settings(f"drop-ins/{name}") if key == "DeviceAllow"]
    assert opened == [("kmsg.conf", "/dev/kmsg r")]


def test_the_user_of_the_unit_is_made_by_the_snippet():
    (line,) = [x for x in (SYSTEMD / "ibmon.sysusers.conf").read_text().splitlines() if not x.startswith("#")]
    assert line.split()[:2] == ["u", dict(settings("ibmon.service"))["User"]]


def test_the_configuration_directories_are_made_by_the_snippet():
    lines = [x.split() for x in (SYSTEMD / "ibmon.tmpfiles.conf").read_text().splitlines() if not x.startswith("#")]
    assert [(x[0], x[1], x[2]) for x in lines] == [("d", "/etc/ibmon", "0755"), ("d", "/etc/ibmon/conf.d", "0755")]
