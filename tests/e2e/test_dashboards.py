"""Dashboards and rules on a real Prometheus that scrapes simulated nodes with faults: every query has something to say.

Each dashboard is drawn from the same data with Grafana's own libraries.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from services import grafana
from services.day import CHOSEN, DASHBOARDS, Day, Query, queries
from services.prometheus import SCRAPE

from ibmon.config import Config
from ibmon.promrules import findings, fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(300)

GROUPS = (findings.group(Config()), fleet.group())
RULES = {
    **{recording.name: recording.expr for group in GROUPS for recording in group.recordings},
    **{alert.name: alert.expr for group in GROUPS for alert in group.alerts},
}
OR_NOTHING = " or vector(0)"


@pytest.fixture(scope="module")
def day() -> Iterator[Day]:
    with Day() as passed:
        yield passed


def names(query: Query) -> str:
    return f"{query.board}/{query.panel}"


@pytest.mark.parametrize("query", list(queries()), ids=names)
def test_every_query_of_every_dashboard_returns_something_in_some_scenario(day: Day, query: Query) -> None:
    assert day.labels(query.expr.removesuffix(OR_NOTHING)), day.placed(query.expr)


LATER = 20 * 60.0
"""Seconds after which a node that was a target is seen to be gone."""


@pytest.mark.parametrize("name", RULES)
def test_every_rule_returns_something_in_some_scenario(day: Day, name: str) -> None:
    found = day.labels(RULES[name]) or day.prometheus.labels(RULES[name], day.end + LATER, day.end + LATER)
    assert found, RULES[name]


@pytest.mark.parametrize("recording", [one.name for group in GROUPS for one in group.recordings])
def test_prometheus_itself_records_every_recording_rule(day: Day, recording: str) -> None:
    assert day.labels(recording)


def of(node: str, **labels: str) -> dict[str, str]:
    return {"node": node, **labels}


TOLD = [
    ("fleet", "What is wrong now", [
        of("gpu-01", rule="port-down", device="mlx5_3", port="1", rail="3"),
        of("gpu-02", rule="flap-storm", device="mlx5_2"),
        of("gpu-03", rule="rate-low", device="mlx5_7"),
        of("gpu-04", rule="device-missing", device="mlx5_5"),
        of("gpu-05", rule="symbol-errors", device="mlx5_4"),
        of("gpu-06", rule="device-stalled", device="mlx5_2"),
        of("gpu-16", rule="receive-errors", device="mlx5_2"),
    ]),
    ("fleet", "Node and rail", [of("gpu-01", rail="3"), of("gpu-04", rail="5"), of("gpu-09", rail="0")]),
    ("fleet", "Drains in force, and drains that were due and not made", [
        {"code": "mode"}, {"code": "scheduler_unreachable"},
    ]),
    ("fleet", "Age of drains", [of("gpu-12"), of("gpu-22")]),
    ("fleet", "Links that flapped most", [of("gpu-02", device="mlx5_2", port="1")]),
    ("fleet", "Highest error ratios", [of("gpu-05", device="mlx5_4", port="1")]),
    ("fleet", "Nodes that nobody can judge", [
        of("gpu-09", why="cannot be judged"), {"instance": "gpu-20:19315", "why": "does not answer a scrape"},
        of("gpu-19", why="values are old"),
    ]),
    ("fleet", "Ports down by rail, and fabric events", [{"rail": "3"}, {"group": "leaf-3", "rule": "port-down"}]),
    ("incident", "Who, and since when", [
        of(f"gpu-{number}", device="mlx5_3", port="1", rail="3") for number in (12, 13, 14)
    ]),
    ("incident", "What is wrong now", [of("gpu-12", rule="port-down", rail="3"), of("gpu-06", rule="device-stalled")]),
    ("incident", "Links that went down", [of("gpu-02", device="mlx5_2")]),
    ("incident", "Error ratios", [of("gpu-05", device="mlx5_4")]),
    ("self", "Oldest values", [of("gpu-19")]),
    ("self", "Saves that failed", [of("gpu-23")]),
    ("self", "Blind spots", [{"counter": "symbol_error"}, {"rule": "symbol-errors"}]),
    ("self", "Reads that failed", [{"errno": "EINVAL"}, {"errno": "EIO"}]),
    ("self", "Deliveries that failed", [{"target": "am:alertmanager-0:9093"}, {"target": "hooks.example.org"}]),
    ("self", "Calls to the scheduler that failed", [{}]),
]  # fmt: skip


@pytest.mark.parametrize(("board", "panel", "series"), TOLD, ids=[f"{board}/{panel}" for board, panel, _ in TOLD])
def test_a_panel_names_the_nodes_and_ports_of_its_scenario(
    day: Day, board: str, panel: str, series: list[dict[str, str]]
) -> None:
    asked = [query.expr for query in queries() if (query.board, query.panel) == (board, panel)]
    assert asked
    found = [labels for expr in asked for labels in day.labels(expr)]
    assert [one for one in series if not any(one.items() <= labels.items() for labels in found)] == []


@pytest.mark.parametrize("panel", ["Received", "Sent"])
def test_traffic_is_drawn_where_a_site_keeps_only_the_names_of_node_exporter(day: Day, panel: str) -> None:
    [expr] = [query.expr for query in queries() if query.panel == panel and "node_infiniband" in query.expr]
    one_node = expr.replace('instance=~"$instance"', 'instance="gpu-21:19315"')
    assert not day.labels('ibmon_port_rcv_data_bytes_total{instance="gpu-21:19315"}')
    assert {labels["device"] for labels in day.labels(one_node)} == {f"mlx5_{number}" for number in range(12)}


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_grafanas_own_models_know_every_key(file: Path) -> None:
    assert grafana.unknown_keys(file) == []


def test_grafanas_own_libraries_draw_every_dashboard_without_a_complaint(day: Day, tmp_path: Path) -> None:
    drawings = [
        grafana.Drawing(file, tmp_path / f"{file.stem}-{theme}.png", theme, day.start + 4, day.end,
                        CHOSEN.get(file.stem, {}))
        for file in DASHBOARDS
        for theme in ("light", "dark")
    ]  # fmt: skip
    reports = grafana.draw(drawings, day.prometheus.url, SCRAPE)
    complaints = {drawing.out.stem: report.problems for drawing, report in zip(drawings, reports, strict=True)}
    assert {name: said for name, said in complaints.items() if said} == {}
    for report in reports:
        shown = sum(rows > 0 for rows in report.rows.values())
        assert shown >= 0.6 * len(report.rows), report.rows
