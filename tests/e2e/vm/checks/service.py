"""The unit under a real systemd: started, watched, restarted while a read hangs, stopped.

The unit file runs as it is shipped. Drop-ins say only where the checkout is (RootDirectory) and shorten the watchdog.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

from checklib import CannotGoOnError, check, eventually, limit, run_checks
from exposition import scrape, serves
from rdma import hung_readers, mock, rxe_pair, sh

HOST_ROOT = Path("/hr")  # what in-host makes of this machine's files
CHECKOUT = HOST_ROOT / os.environ["IBMON_CHECKOUT"].lstrip("/")
WATCHDOG = 8  # seconds, instead of the shipped ones
START_LIMIT = 90  # seconds of a start under emulation
undisturbed: list[float] = []  # seconds of a start while nothing hangs: well below 1 on a real processor
hung: set[int] = set()  # the readers that hang from one check to the next


def prepare() -> None:
    """What the package's installation does, within the guest's copy of this machine's files (nothing is changed)."""
    sh("/usr/lib/ibvm/in-host")
    systemd = CHECKOUT / "systemd"
    unit = (systemd / "ibmon.service").read_text()
    Path("/etc/systemd/system/ibmon.service").write_text(unit)
    for snippet in sorted(systemd.rglob("*sysusers*.conf")):
        sh(f"systemd-sysusers {snippet}")
    program = HOST_ROOT / re.search(r"^ExecStart=[-@:+!]*(\S+)", unit, re.MULTILINE)[1].lstrip("/")
    program.parent.mkdir(parents=True, exist_ok=True)
    program.unlink(missing_ok=True)
    program.symlink_to(os.environ["IBMON"])
    paths = [Path(os.environ[variable]) for variable in ("IBMON", "IBMON_INTERPRETER", "IBMON_CHECKOUT")]
    for path in paths:
        let_everyone_in(path)
    # Where Python lies in a home directory, or the checkout in /tmp, the unit's restrictions would hide it.
    temporary = any(path.is_relative_to(top) for path in paths for top in ("/tmp", "/var/tmp"))
    dropin("root", f"RootDirectory={HOST_ROOT}\nProtectHome=read-only\nPrivateTmp={'no' if temporary else 'yes'}")
    dropin("watchdog", f"WatchdogSec={WATCHDOG}")


def let_everyone_in(path: Path) -> None:
    """The daemon's user must reach it although, say, /root is closed; the change ends with the guest."""
    for parent in path.parents:
        directory = HOST_ROOT / str(parent).lstrip("/")
        directory.chmod(directory.stat().st_mode | 0o555)


def dropin(name: str, text: str) -> None:
    """A drop-in for the unit."""
    directory = Path("/etc/systemd/system/ibmon.service.d")
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.conf").write_text(f"[Service]\n{text}\n")
    sh("systemctl daemon-reload")


def show(unit_property: str) -> str:
    """One property of the unit."""
    return sh(f"systemctl show -p {unit_property} --value ibmon").strip()


def main_pid() -> int:
    """The daemon's process; 0, which means a whole process group to kill(), is never returned."""
    pid = int(show("MainPID"))
    assert pid > 0, f"ibmon does not run:\n{journal()}"
    return pid


def journal() -> str:
    """What the unit and systemd said of it."""
    return sh("journalctl -u ibmon --no-pager -o cat")


def shown(name: str, device: str) -> float | None:
    """A device's value in a scrape; None where there is none, or nobody who answers."""
    with contextlib.suppress(OSError):  # it may stop between two requests
        return scrape(timeout=2).value(name, device=device)
    return None


def serves_healthy_port() -> bool:
    """Whether a scrape is answered now and tells the state of the port that does not hang."""
    return shown("ibmon_port_state", "mlx5_0") == 4


def shows_it_stalled() -> bool:
    """Whether a scrape is answered now and tells that the hung device is stalled."""
    return shown("ibmon_device_stalled", "mlx5_1") == 1


@check
def the_unit_starts_and_says_that_it_is_ready():
    begin = time.monotonic()
    try:
        sh("systemctl start ibmon", timeout=START_LIMIT)
    except RuntimeError as error:
        raise CannotGoOnError(f"{error}\n{journal()}") from None
    taken = time.monotonic() - begin
    assert show("ActiveState") == "active"
    assert show("Type") == "notify"
    assert serves(), "READY=1 was sent before the exporter answered"
    return f"{taken:.1f} s"


@check
def it_runs_as_its_own_user_and_tells_a_status():
    status = Path(f"/proc/{main_pid()}/status").read_text()
    uid = int(re.search(r"^Uid:\t(\d+)", status, re.MULTILINE)[1])
    assert uid not in {0, 65534}, uid
    assert int(re.search(r"^CapEff:\t(\w+)", status, re.MULTILINE)[1], 16) == 0, "it has capabilities"
    assert show("StatusText"), "no STATUS= was sent"
    assert "Traceback" not in journal()
    return show("StatusText")


@check
def it_exports_the_kernel_s_devices_under_the_unit_s_restrictions():
    metrics = scrape()
    assert {"rxe0", "mlx5_0", "mlx5_1"} <= metrics.devices("ibmon_port_state")
    assert metrics.value("ibmon_port_state", device="mlx5_0", port="1") == 4
    assert metrics.value("ibmon_port_symbol_error_total", device="mlx5_0", port="1") == 0


@check
def a_device_appears_within_3_s_by_udev():
    mock("add hot0 1")
    added = eventually(
        lambda: "hot0" in scrape().devices("ibmon_port_state"), within=limit(3, emulated=6), what="hot0 is exported"
    )
    mock("del hot0")
    deleted = eventually(
        lambda: "hot0" not in scrape().devices("ibmon_port_state"), within=limit(3, emulated=6), what="hot0 is gone"
    )
    return f"added {added:.2f} s, deleted {deleted:.2f} s"


@check
def the_watchdog_is_fed():
    time.sleep(WATCHDOG * 1.5)
    assert show("NRestarts") == "0", journal()
    assert show("ActiveState") == "active"


@check
def a_stopped_loop_is_restarted_by_the_watchdog():
    pid = main_pid()
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: show("NRestarts") == "1", within=WATCHDOG + START_LIMIT, what="one restart")
    eventually(serves, within=START_LIMIT, what="it serves again")
    assert main_pid() != pid
    assert "Watchdog timeout" in journal()


@check
def a_stop_takes_less_than_2_s_and_is_clean():
    eventually(lambda: show("ActiveState") == "active", within=START_LIMIT, what="it is active")
    begin = time.monotonic()
    sh("systemctl stop ibmon")
    taken = time.monotonic() - begin
    assert show("Result") == "success"
    assert taken < limit(2, emulated=4), taken
    begin = time.monotonic()
    sh("systemctl start ibmon", timeout=START_LIMIT)
    undisturbed.append(time.monotonic() - begin)
    return f"{taken:.2f} s"


def memory(pid: int) -> str:
    """Resident and proportional memory of a process."""
    fields = dict(re.findall(r"^(Rss|Pss): +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE))
    return ", ".join(f"{name} {int(value) / 1024:.1f} MiB" for name, value in sorted(fields.items(), reverse=True))


def parent(pid: int) -> int:
    """The process that made it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def beside() -> tuple[list[int], list[int]]:
    """The service's processes but the daemon: the template that it made, and the readers that this made."""
    main = main_pid()
    listed = (Path(f"/sys/fs/cgroup/{show('ControlGroup')}") / "cgroup.procs").read_text().split()
    pids = sorted({int(pid) for pid in listed} - {main})
    return [pid for pid in pids if parent(pid) == main], [pid for pid in pids if parent(pid) != main]


def serves_again(command: str, old: int) -> str:
    """Seconds from a command that ends the daemon until its successor serves what does not hang."""
    begin = time.monotonic()
    sh(command)
    # Asked in this order: a refused connection costs nothing, and systemctl would take time from what is measured.
    eventually(
        lambda: serves_healthy_port() and show("MainPID") not in {"0", str(old)},
        within=limit(10, emulated=10 + undisturbed[0]),
        what=lambda: journal()[-2000:],
    )
    return f"{time.monotonic() - begin:.2f} s"


@check
def one_process_reads_and_holds_none_of_the_daemon_s_sockets_and_files():
    [template], [reader] = beside()
    for pid in (template, reader):
        held = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
        others = [target for target in held if not target.startswith(("/sys/", "/hr/sys/"))]
        assert sorted(target.partition(":")[0] for target in others) == ["/dev/null"] * 3 + ["socket"], others
    return f"daemon {memory(main_pid())}; template {memory(template)}; reader {memory(reader)}"


@check
def a_read_that_hangs_costs_one_more_process():
    """From here on the device hangs until the guest ends."""
    _, [before] = beside()
    mock("mlx5_1 1 delay_ms 150000")
    eventually(hung_readers, within=15, what="a reader in D state")
    hung.update(hung_readers())
    assert hung == {before}
    eventually(shows_it_stalled, within=limit(10, emulated=20), what="mlx5_1 is stalled")
    eventually(serves_healthy_port, within=limit(5, emulated=10), what="another reader reads mlx5_0")
    _, readers = beside()
    [successor] = set(readers) - hung
    return memory(successor)


@check
def a_restart_serves_again_within_10_s_while_a_read_hangs_in_d_state():
    old = main_pid()
    return serves_again("systemctl restart --no-block ibmon", old)


@check
def the_successor_shows_the_hung_device_as_stalled_and_the_others_as_they_are():
    eventually(shows_it_stalled, within=limit(5, emulated=20), what="mlx5_1 is stalled")
    eventually(serves_healthy_port, within=limit(5, emulated=20), what="mlx5_0 is exported")
    assert scrape().value("ibmon_port_state", device="mlx5_1", port="1") is None


@check
def a_killed_daemon_serves_again_within_10_s_while_a_read_hangs_in_d_state():
    old = main_pid()
    return serves_again(f"kill -9 {old}", old)


@check
def no_successor_asks_the_hung_device_anything_more():
    time.sleep(6)  # more than one state interval
    assert hung
    assert (now := hung_readers()) == hung, f"{hung} hung before the restarts and {now} after them"
    assert shows_it_stalled()


if __name__ == "__main__":
    rxe_pair("up")
    mock("add mlx5_0 1", "add mlx5_1 1")
    prepare()
    run_checks()
    print(journal()[-8000:])
