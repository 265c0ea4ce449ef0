"""What all dashboards share: the data source as a variable, panels with a description, words and colours of verdicts.

Owns the JSON. grafanalib 0.7 still writes shapes that Grafana has left behind; they are corrected here and nowhere
else. Codes, limits and names come from ibmon's own tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attr
import grafanalib.core as g
from grafanalib._gen import DashboardEncoder

from ibmon.health.rules import RULE_BY_ID
from ibmon.model import NodeFitness, PhysicalState, PortHealth, PortState

SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA: Final = 39
"""The JSON model of Grafana 10 and 11; newer ones migrate it when they load it."""
WIDTH: Final = 24
TAG: Final = "ibmon"

GREEN, YELLOW, ORANGE, RED, BLUE, PURPLE, GREY = "green", "yellow", "orange", "red", "blue", "purple", "#808080"

# Colours are told apart by text too: every coloured field shows its word. Worse is higher, so that max() is the worst.
HEALTH: Final[Mapping[PortHealth, tuple[int, str]]] = {
    PortHealth.IGNORED: (0, GREY),
    PortHealth.OK: (1, GREEN),
    PortHealth.RECOVERING: (2, BLUE),
    PortHealth.WARNING: (3, YELLOW),
    PortHealth.UNKNOWN: (4, PURPLE),
    PortHealth.DEGRADED: (5, ORANGE),
    PortHealth.FAILED: (6, RED),
}
FITNESS: Final[Mapping[NodeFitness, tuple[int, str]]] = {
    NodeFitness.FIT: (0, GREEN),
    NodeFitness.WATCH: (1, YELLOW),
    NodeFitness.UNKNOWN: (2, PURPLE),
    NodeFitness.UNFIT: (3, RED),
}
SEVERITY: Final = {"warning": (1, YELLOW), "critical": (2, RED)}


def mapping(words: Mapping[int, tuple[str, str]]) -> list[dict[str, Any]]:
    """A value mapping: number to word and colour."""
    options = {str(n): {"text": text, "color": color, "index": n} for n, (text, color) in words.items()}
    return [{"type": "value", "options": options}]


HEALTH_WORDS: Final = mapping({code: (health.value, color) for health, (code, color) in HEALTH.items()})
FITNESS_WORDS: Final = mapping({code: (fitness.value, color) for fitness, (code, color) in FITNESS.items()})
SEVERITY_WORDS: Final = mapping({code: (word, color) for word, (code, color) in SEVERITY.items()})
STATE_WORDS: Final = mapping(
    {s.value: (s.name, GREEN if s is PortState.ACTIVE else RED if s is PortState.DOWN else ORANGE) for s in PortState}
)
PHYSICAL_WORDS: Final = mapping(
    {s.value: (s.name, GREEN if s is PhysicalState.LINK_UP else ORANGE) for s in PhysicalState}
)

# ------------------------------------------------------------------------------------------------------------- PromQL

NODE: Final = 'ibmon_node_info{node=~"$node"}'


def of_node(expr: str, node: str = NODE) -> str:
    """The series of the chosen nodes, with the node's own name."""
    return f"{expr} * on (job, instance) group_left (node) {node}"


def on_rail(expr: str, info: str = 'ibmon_port_info{role="compute"}') -> str:
    """The series of these ports, with their rail."""
    return f"{expr} * on (job, instance, device, port) group_left (rail) {info}"


def health(selector: str = "") -> str:
    """Health of ports as the numbers of `HEALTH`."""
    each = (
        f'{code} * (ibmon_port_health{{{_also(selector)}health="{word.value}"}} == 1)'
        for word, (code, _) in HEALTH.items()
    )
    return f"sum without (health) ({' or '.join(each)})"


def fitness(selector: str = "") -> str:
    """Fitness of nodes as the numbers of `FITNESS`."""
    each = (
        f'{code} * (ibmon_node_fitness{{{_also(selector)}fitness="{word.value}"}} == 1)'
        for word, (code, _) in FITNESS.items()
    )
    return f"sum without (fitness) ({' or '.join(each)})"


def severity(selector: str = "") -> str:
    """Findings as the numbers of `SEVERITY`."""
    each = (f'{code} * ibmon_finding{{{_also(selector)}severity="{word}"}}' for word, (code, _) in SEVERITY.items())
    return f"({' or '.join(each)})"


def _also(selector: str) -> str:
    return f"{selector}," if selector else ""


def or_zero(expr: str) -> str:
    """Zero where nothing is counted: none is an answer too."""
    return f"{expr} or vector(0)"


SYMBOL_ERRORS: Final = RULE_BY_ID["symbol-errors"]
GROSS_ERRORS: Final = RULE_BY_ID["gross-errors"]


def ratio(window: str, seconds: str, selector: str = "") -> str:
    """Symbol errors for each bit that the link could carry meanwhile: what the rules compare with their limits."""
    at = f"{{{selector}}}" if selector else ""
    return (
        f"increase(ibmon_port_symbol_error_total{at}[{window}]) / on (job, instance, device, port) "
        f"(ibmon_port_expected_rate_bytes_per_second{at} * 8 * {seconds})"
    )


COARSE: Final = "1m"
"""The least step of queries that look at every port of the fleet: what they show does not need more."""


def query(expr: str, legend: str = "", *, instant: bool = False, table: bool = False, interval: str = "") -> g.Target:
    """One query; a table's is instant. `interval` is the least step of one over time."""
    return g.Target(
        expr=expr, legendFormat=legend, instant=instant or table, format="table" if table else "time_series",
        datasource=SOURCE, interval=interval,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- panels


class BarGauge(g.BarGauge):
    """A bar gauge in the shape that Grafana has had since 7.0."""

    def to_json_data(self) -> dict[str, Any]:
        """The panel as JSON."""
        panel = self.panel_json(
            {
                "fieldConfig": {
                    "defaults": {
                        "unit": self.format,
                        "min": self.min,
                        "decimals": self.decimals,
                        "color": {"mode": "thresholds"},
                    },
                    "overrides": [],
                },
                "options": {
                    "orientation": "horizontal",
                    "displayMode": "basic",
                    "valueMode": "color",
                    "namePlacement": "left",
                    "showUnfilled": True,
                    "minVizHeight": 16,
                    "minVizWidth": 8,
                    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                },
                "type": "bargauge",
            }
        )
        assert isinstance(panel, dict)
        return panel


def steps(*limits: tuple[float, str], base: str = GREEN) -> list[dict[str, Any]]:
    """Thresholds: the base colour, then from each limit on another."""
    return [{"color": base, "value": None}, *({"color": color, "value": limit} for limit, color in limits)]


def _targets(queries: g.Target | Sequence[g.Target]) -> list[g.Target]:
    one = [queries] if isinstance(queries, g.Target) else list(queries)
    return [attr.evolve(target, refId=chr(ord("A") + number)) for number, target in enumerate(one)]


def stat(
    title: str, description: str, queries: g.Target | Sequence[g.Target], *, unit: str = "short",
    thresholds: list[dict[str, Any]] | None = None, words: list[dict[str, Any]] | None = None, graph: bool = False,
    no_value: str = "-", links: Sequence[dict[str, Any]] = (), decimals: int | None = None, text: str = "auto",
) -> g.Stat:  # fmt: skip
    """One number, its background coloured by thresholds or words."""
    return g.Stat(
        title=title, description=description, dataSource=SOURCE, targets=_targets(queries), format=unit,
        thresholds=thresholds or steps(), mappings=words or [], graphMode="area" if graph else "none",
        colorMode="background", reduceCalc="lastNotNull", noValue=no_value, decimals=decimals, textMode=text,
        color={"mode": "thresholds"}, extraJson={"fieldConfig": {"defaults": {"links": list(links)}}},
    )  # fmt: skip


def series(
    title: str, description: str, queries: g.Target | Sequence[g.Target], *, unit: str = "short",
    thresholds: list[dict[str, Any]] | None = None, stacked: bool = False, stepped: bool = False, log: bool = False,
    overrides: Sequence[dict[str, Any]] = (), beside: bool = False, minimum: float = 0,
    no_value: str | None = None, decimals: int | None = None,
) -> g.TimeSeries:  # fmt: skip
    """Lines over time; `thresholds` are drawn as lines. Where there may be many, their names stand `beside` them."""
    return g.TimeSeries(
        title=title, description=description, dataSource=SOURCE, targets=_targets(queries), unit=unit,
        thresholds=thresholds or steps(), thresholdsStyleMode="dashed" if thresholds else "off", lineWidth=1,
        fillOpacity=60 if stacked else 8, lineInterpolation="stepAfter" if stepped else "linear",
        stacking={"mode": "normal" if stacked else "none", "group": "A"}, showPoints="never", tooltipMode="multi",
        tooltipSort="desc", legendPlacement="right" if beside else "bottom", overrides=list(overrides),
        valueDecimals=decimals, scaleDistributionType="log" if log else "linear",
        scaleDistributionLog=10,
        extraJson={
            "options": {"legend": {"showLegend": True}},
            "fieldConfig": {"defaults": {"min": minimum, **({"noValue": no_value} if no_value else {})}},
        },
    )  # fmt: skip


def timeline(
    title: str, description: str, queries: g.Target | Sequence[g.Target], words: list[dict[str, Any]], *,
    no_value: str | None = None,
) -> g.StateTimeline:  # fmt: skip
    """States over time, one row a series."""
    return g.StateTimeline(
        title=title, description=description, dataSource=SOURCE, targets=_targets(queries), mappings=words,
        thresholds=steps(base=GREY), fillOpacity=85, showValue="auto",
        extraJson={
            "options": {"legend": {"showLegend": True}},
            "fieldConfig": {"defaults": {"noValue": no_value}} if no_value else {},
        },
    )  # fmt: skip


def bars(
    title: str, description: str, target: g.Target, *, unit: str, thresholds: list[dict[str, Any]], no_value: str,
    decimals: int | None = None,
) -> BarGauge:  # fmt: skip
    """The worst of many, as bars; nothing to show is told in words."""
    return BarGauge(
        title=title, description=description, dataSource=SOURCE, targets=_targets(target), format=unit, min=0,
        thresholds=thresholds, decimals=decimals, extraJson={"fieldConfig": {"defaults": {"noValue": no_value}}},
    )  # fmt: skip


_BLANK: Final = {
    "matcher": {"id": "byType", "options": "string"},
    "properties": [{"id": "noValue", "value": " "}],
}
"""What stands for an empty label is nothing; the words of `no_value` are for a table without rows."""


def table(
    title: str, description: str, queries: g.Target | Sequence[g.Target], *, columns: Mapping[str, str],
    overrides: Sequence[dict[str, Any]] = (), sort: tuple[str, bool] | None = None, no_value: str = "nothing",
    without: Sequence[str] = (),
    transformations: Sequence[dict[str, Any]] | None = None,
) -> g.Table:  # fmt: skip
    """A table of instant queries, merged by their labels.

    `columns` are shown in this order and under these names, those of `without` not at all.
    """
    own = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": dict.fromkeys(("Time", *without), True),
                "indexByName": {name: number for number, name in enumerate(columns)},
                "renameByName": {name: shown for name, shown in columns.items() if name != shown},
            },
        },
    ]
    return g.Table(
        title=title, description=description, dataSource=SOURCE, targets=_targets(queries),
        transformations=list(own if transformations is None else transformations),
        overrides=[_BLANK, *overrides], align="left",
        sortBy=[g.TableSortByField(displayName=sort[0], desc=sort[1])] if sort else [], thresholds=steps(),
        extraJson={
            "options": {"cellHeight": "sm", "footer": {"show": False, "reducer": [], "fields": ""}},
            "fieldConfig": {"defaults": {"noValue": no_value, "color": {"mode": "thresholds"}}},
        },
    )  # fmt: skip


def field(name: str, **properties: Any) -> dict[str, Any]:
    """What is different for one field; `_` in a property's name stands for a dot."""
    listed = [{"id": key.replace("_", "."), "value": value} for key, value in properties.items()]
    return {"matcher": {"id": "byName", "options": name}, "properties": listed}


def coloured(name: str, words: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A field whose cells have the colour of their word."""
    cell = {"type": "color-background", "mode": "basic"}
    return field(name, mappings=words, custom_cellOptions=cell, **more)


def fixed(pattern: str, color: str) -> dict[str, Any]:
    """Series whose names fit a regular expression always have the same colour."""
    colored = {"id": "color", "value": {"mode": "fixed", "fixedColor": color}}
    return {"matcher": {"id": "byRegexp", "options": f"^{pattern}$"}, "properties": [colored]}


def link(title: str, uid: str, **variables: str) -> dict[str, Any]:
    """A link to another dashboard, with the time that is looked at and the same data source."""
    chosen = "".join(f"&var-{name}={value}" for name, value in variables.items())
    return {"title": title, "url": f"/d/{uid}?${{__url_time_range}}&${{datasource:queryparam}}{chosen}"}


# --------------------------------------------------------------------------------------------------------- dashboards


def variable(name: str, label: str, source: str, *, many: bool = True, hide: bool = False) -> g.Template:
    """A variable whose values are asked for; one for many has `All` as its default."""
    return g.Template(
        name=name, label=label, query=source, dataSource=SOURCE, type="query", refresh=2, sort=3, multi=many,
        includeAll=many, allValue=".*" if many and not hide else None, default="$__all" if many else None,
        hide=g.HIDE_VARIABLE if hide else g.SHOW,
    )  # fmt: skip


def answers(name: str, label: str, expr: str, of: str) -> g.Template:
    """A hidden variable: all values that a label has in the answer to a query."""
    found = variable(name, label, f"query_result({expr})", hide=True)
    return attr.evolve(found, regex=f'/{of}="([^"]+)"/')


def choice(name: str, label: str, options: Mapping[str, str]) -> g.Template:
    """A variable with fixed values by the words that people choose from; the first one is the default."""
    listed = [
        {"selected": number == 0, "text": text, "value": value} for number, (text, value) in enumerate(options.items())
    ]
    written = ",".join(f"{text} : {value}" for text, value in options.items())
    return g.Template(name=name, label=label, query=written, type="custom", options=listed)


DATASOURCE: Final = g.Template(name="datasource", label="Data source", query="prometheus", type="datasource")


def annotation(name: str, expr: str, color: str, title: str, text: str) -> dict[str, Any]:
    """Marks in all panels while the expression has a value."""
    return {
        "name": name, "datasource": SOURCE, "expr": expr, "iconColor": color, "titleFormat": title, "textFormat": text,
        "enable": True, "hide": False, "step": "30s", "useValueForTime": False,
    }  # fmt: skip


def placed(*rows: tuple[int, Sequence[tuple[int, g.Panel]]] | str) -> list[g.Panel]:
    """Panels in rows: each row has a height and panels with their widths; a text is a heading.

    Raises:
        ValueError: the widths of a row do not add up to the width of a dashboard.
    """
    out: list[g.Panel] = []
    y = 0
    for row in rows:
        if isinstance(row, str):
            out.append(g.RowPanel(title=row, gridPos=g.GridPos(h=1, w=WIDTH, x=0, y=y)))
            y += 1
            continue
        height, panels = row
        if sum(width for width, _ in panels) != WIDTH:
            raise ValueError(f"the row at {y} is not {WIDTH} wide: {[panel.title for _, panel in panels]}")
        x = 0
        for width, panel in panels:
            out.append(attr.evolve(panel, gridPos=g.GridPos(h=height, w=width, x=x, y=y)))
            x += width
        y += height
    return out


def board(
    uid: str, title: str, description: str, *, variables: Sequence[g.Template], panels: list[g.Panel],
    annotations: Iterable[dict[str, Any]] = (),
) -> g.Dashboard:  # fmt: skip
    """A dashboard whose links lead to the others with the same time and variables."""
    others = g.DashboardLink(
        title="ibmon", type="dashboards", tags=[TAG], asDropdown=False, includeVars=True, keepTime=True
    )
    return g.Dashboard(
        title=title, uid=uid, description=description, tags=[TAG], timezone="browser", refresh="30s",
        schemaVersion=SCHEMA, time=g.Time("now-1h", "now"), graphTooltip=1, links=[others],
        templating=g.Templating([DATASOURCE, *variables]), annotations=g.Annotations(list(annotations)),
        panels=panels,
    ).auto_panel_ids()  # fmt: skip


_LEFT_BEHIND: Final = frozenset(
    {
        "__inputs", "auto", "auto_count", "auto_min", "cacheTimeout", "columns", "editable", "error", "fontSize",
        "gnetId", "height", "hideControls", "hideTimeOverride", "intervalFactor", "maxDataPoints", "maxPerRow",
        "metric", "minSpan", "repeatDirection", "rows", "sharedCrosshair", "span", "style", "tagValuesQuery",
        "tagsQuery", "target", "timeFrom", "timeShift", "useTags",
    }
)  # fmt: skip
"""What grafanalib writes and Grafana's model of today does not have, or that would set a value nobody chose."""


def text(dashboard: g.Dashboard) -> str:
    """The dashboard as the JSON file that is committed and provisioned."""
    plain = json.loads(json.dumps(dashboard.to_json_data(), cls=DashboardEncoder))
    clean = _tidy(plain)
    for panel in clean["panels"]:
        _correct(panel)
    clean["timepicker"] = {}
    clean.update({"editable": True, "id": None, "version": 1})
    return json.dumps(clean, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


_STEP: Final = {"color", "value"}
"""A step of thresholds: the value of the first is null, which must not be left out."""
_EMPTY: Final = frozenset({"fields", "legendFormat"})
"""Empty texts that mean something."""


def _tidy(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _tidy(one)
            for key, one in value.items()
            if key not in _LEFT_BEHIND and (one is not None or set(value) == _STEP) and (one != "" or key in _EMPTY)
        }
    if isinstance(value, list):
        return [_tidy(one) for one in value]
    return value


def _correct(panel: dict[str, Any]) -> None:
    """Shapes that grafanalib still writes as older versions of Grafana had them."""
    for target in panel.get("targets", ()):
        target.pop("query", None)
        target.pop("step", None)
        target["range"] = not target["instant"]
    if panel["type"] == "table":
        for key in ("color", "mappings"):
            panel.pop(key, None)
        panel["fieldConfig"]["defaults"]["custom"].pop("displayMode", None)
    if panel["type"] == "row":
        for key in ("fieldConfig", "targets", "links", "transformations", "transparent"):
            panel.pop(key, None)
