"""What a node's report says, that every report fits through the wire, and which changes are news."""

from __future__ import annotations

import msgspec
import pytest
from exporter_snapshots import AT, device_view, port_values, port_view, snapshot
from fleet_side import fault

from ibmon import reporting
from ibmon.health.windows import Moment
from ibmon.maintenance import Window
from ibmon.model import Mode, NodeFitness, Ownership, PortHealth, Role, Severity
from ibmon.report import MAX_BYTES, Report, Wish

WISH = Wish(drain=True, id="7f3a9c", reason="ibmon: port-down mlx5_3/1 [id 7f3a9c]", since=4.0)


def report(picture, wish=WISH, record=None, **more):
    usual = {"mode": Mode.DRAIN, "version": "1.0", "boot_id": "b007", "seq": 1, "sent": 5.0}
    return reporting.report(picture, wish, record, **{**usual, **more})


def digest(picture, **more):
    return reporting.digest(report(picture, **more))


def node(**facts):
    devices = [device_view(f"mlx5_{n}", port_values(), node_guid=f"guid{n}") for n in range(2)]
    ports = [port_view("mlx5_0", rail=1, health=PortHealth.FAILED), port_view("mlx5_1", rail=0)]
    return snapshot(**{"devices": devices, "ports": ports, **facts})


def test_it_tells_findings_with_rail_and_guid_the_worst_first():
    found = (fault("mlx5_1", severity=Severity.WARNING, drains=False), fault("mlx5_0"))
    told = report(node(findings=found, fitness=NodeFitness.UNFIT, why="port-down mlx5_0/1"))

    assert [(f.device, f.rail, f.guid, f.drains) for f in told.findings] == [
        ("mlx5_0", 1, "guid0", True),
        ("mlx5_1", 0, "guid1", False),
    ]
    assert (told.fitness, told.why, told.mode, told.intent) == ("unfit", "port-down mlx5_0/1", Mode.DRAIN, WISH)
    assert (told.findings[0].observed, told.findings[0].limit, told.findings[0].onset) == ("DOWN", "ACTIVE", 5.0)


@pytest.mark.parametrize("facts", [{"trusted": False}, {"maintenance": True}, {"drains": False}])
def test_a_finding_for_which_the_node_would_not_be_drained_says_so(facts):
    assert not report(node(findings=(fault("mlx5_0", **facts),))).findings[0].drains


def test_rails_are_the_compute_ports_by_rail_in_a_letter_each():
    ports = [
        port_view("mlx5_0", rail=2, health=PortHealth.FAILED),
        port_view("mlx5_1", rail=0),
        port_view("mlx5_2", rail=1, health=PortHealth.RECOVERING),
        port_view("mlx5_3", health=PortHealth.UNKNOWN),
        port_view("mlx5_4", role=Role.STORAGE, health=PortHealth.DEGRADED),
    ]
    assert report(snapshot(ports=ports)).rails == "orfu"


def test_holds_tell_their_onset_and_what_is_left():
    ports = [port_view("mlx5_0", rail=3, hold={"port-down": 12.0, "rate-low": 2.0}, onset={"port-down": 100.0})]
    told = report(snapshot(ports=ports))
    assert [(h.rule, h.rail, h.onset, h.left) for h in told.holds] == [
        ("rate-low", 3, AT.wall, 2.0),
        ("port-down", 3, 100.0, 12.0),
    ]


def test_the_record_is_told_as_it_is_stored():
    told = report(node(), record=Ownership("7f3a9c", WISH.reason, 3.0, held=True))
    assert (told.owned.id, told.owned.reason, told.owned.asked, told.owned.held) == ("7f3a9c", WISH.reason, 3.0, True)
    assert report(node()).owned is None


def window(*subjects, seconds=600.0, reason="recabling"):
    return Window(subjects, Moment(AT.monotonic, AT.wall, "0b1d"), seconds, reason, "alice")


def test_windows_are_told_as_one_and_that_of_the_whole_node_speaks_for_all():
    told = report(node(maintenance=(window("mlx5_0"), window("mlx5_1/1", seconds=900.0)))).maintenance
    assert (told.subjects, told.until, told.user) == (("mlx5_0", "mlx5_1/1"), AT.wall + 900, "alice")
    whole = report(node(maintenance=(window("mlx5_0", seconds=900.0), window(reason="reboot")))).maintenance
    assert (whole.subjects, whole.until, whole.reason) == ((), AT.wall + 600, "reboot")


def test_the_largest_node_with_the_longest_words_fits_through_the_wire_whole():
    long = "x" * 600
    names = [f"mlx5_{n:03d}" + "y" * 56 for n in range(256)]
    ports = [port_view(n, hold={f"rule-{i}-of-some-name": 1.0 for i in range(4)}, rail=i) for i, n in enumerate(names)]
    findings = tuple(
        fault(name, rule=f"rule-{i}-of-some-name", observed=long, limit=long) for name in names for i in range(3)
    )
    windows = tuple(window(f"{name}/1", reason=long) for name in names[:32])
    told = report(
        snapshot(
            devices=[device_view(n, {}, node_guid="b83f:d203:00aa:0001") for n in names],
            ports=ports, findings=findings, why=long, maintenance=windows,
        ),
        record=Ownership("7f3a9c", long, 3.0),
    )  # fmt: skip
    body = msgspec.json.encode(told)

    assert len(body) <= MAX_BYTES
    assert msgspec.json.decode(body, type=Report) == told
    assert len(told.rails) == 256
    assert len(told.findings) == reporting.MOST


# ------------------------------------------------------------------------------------------ what is news


def moved(picture, seconds):
    at = type(AT)(AT.monotonic + seconds, AT.wall + seconds + 0.004)
    return msgspec.structs.replace(picture, at=at, sequence=picture.sequence + 1)


def test_numbers_that_move_by_themselves_are_no_news():
    def at(seconds):
        ports = [port_view("mlx5_0", hold={"port-down": 50.0 - seconds}, onset={"port-down": 100.0})]
        facts = {"findings": (fault("mlx5_0", observed=7.0 + seconds),), "maintenance": (window(),)}
        return moved(node(ports=ports, why=f"port-down {seconds}s", **facts), seconds)

    assert digest(at(0.0), seq=1, sent=5.0) == digest(at(9.0), seq=9, sent=14.0)


@pytest.mark.parametrize(
    "facts",
    [
        {"fitness": NodeFitness.WATCH},
        {"findings": (fault("mlx5_0"),)},
        {
            "ports": [
                port_view("mlx5_0", rail=1, health=PortHealth.FAILED),
                port_view("mlx5_1", rail=0, hold={"x": 5.0}),
            ]
        },
        {"ports": [port_view("mlx5_0", rail=1), port_view("mlx5_1", rail=0)]},
        {"maintenance": (window(),)},
        {"config_hash": "beef"},
    ],
)
def test_whatever_else_changes_is_news(facts):
    assert digest(node()) != digest(node(**facts))


def test_a_wish_a_record_and_a_mode_are_news():
    base = digest(node())
    owned = Ownership("7f3a9c", WISH.reason, 3.0)
    assert digest(node(), wish=Wish()) != base
    assert digest(node(), record=owned) != base
    assert digest(node(), record=owned) != digest(node(), record=msgspec.structs.replace(owned, held=True))
    assert digest(node(), mode=Mode.OBSERVE) != base


@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.CRITICAL])
def test_pictures_that_are_alike_make_the_same_report(severity):
    one = node(findings=(fault(severity=severity),))
    later = moved(one, 5.0)
    assert reporting.alike(one, later)
    assert digest(one) == digest(later)
    assert not reporting.alike(one, msgspec.structs.replace(one, findings=()))
