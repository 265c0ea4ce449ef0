"""Fleet: which nodes are bad, why, since when, and what keeps them out of service."""

from shared import (
    BLUE,
    COARSE,
    FITNESS,
    GREY,
    HEALTH_WORDS,
    NODE,
    ORANGE,
    PURPLE,
    RED,
    SEVERITY_WORDS,
    SYMBOL_ERRORS,
    YELLOW,
    bars,
    board,
    choice,
    coloured,
    field,
    fixed,
    health,
    link,
    of_node,
    on_rail,
    or_zero,
    placed,
    query,
    ratio,
    series,
    severity,
    stat,
    steps,
    table,
    variable,
)

TO_NODE = link("Node ${__value.text}", "ibmon-node", node="${__value.text}")
TO_RAIL = link("Rail ${__value.text} across nodes", "ibmon-incident", rail="${__value.text}")
TO_INCIDENT = link("Which rail and since when", "ibmon-incident")

SHOWN = f'({NODE} and on (job, instance) (ibmon_node_fitness{{fitness=~"$show"}} == 1))'
SILENT = "up == 0 and on (job) group by (job) (last_over_time(ibmon_build_info[1d]))"


def nodes(fitness: str) -> str:
    """How many nodes have this verdict."""
    return or_zero("count(" + of_node(f'(ibmon_node_fitness{{fitness="{fitness}"}} == 1)') + ")")


FOUND = of_node(severity())
FINDINGS = (
    f"max by (node, rail, device, port, rule) ({on_rail(FOUND, 'ibmon_port_info')} "
    f"or on (job, instance, device, port, rule, severity) {FOUND})"
)
MATRIX = f"max by (node, rail) ({of_node(on_rail(health()), SHOWN)})"


def because(expr: str, why: str) -> str:
    """The series with a label that tells why they are shown."""
    return f'label_replace({expr}, "why", "{why}", "", "")'


NOT_SEEN = " or ".join(
    (
        because(of_node('(ibmon_node_fitness{fitness="unknown"} == 1)'), "cannot be judged"),
        because(SILENT, "does not answer a scrape"),
        because(of_node("(max by (job, instance) (ibmon_sample_age_seconds) > 60)"), "values are old"),
    )
)
DRAINED_FOR = of_node("(time() - ibmon_drain_since_timestamp_seconds and ibmon_drain_active == 1)")
ERRORS = f"({ratio('$__range', '$__range_s')} > 0)"

dashboard = board(
    "ibmon-fleet",
    "ibmon / Fleet",
    "Which nodes are not fit for multi-node jobs, what was found there, and what is drained.",
    variables=[
        variable("node", "Node", "label_values(ibmon_node_info, node)"),
        choice("show", "Matrix shows", {"nodes that are not fit": "watch|unfit|unknown", "all nodes": ".*"}),
    ],
    panels=placed(
        (4, [
            (4, stat(
                "Unfit", "Nodes with a fault that makes them unfit for multi-node jobs. Any is one too many.",
                query(nodes("unfit")), thresholds=steps((1, RED)), graph=True, links=[TO_INCIDENT],
            )),
            (4, stat(
                "Watch", "Nodes on which something was found that is no reason to drain, or not yet.",
                query(nodes("watch")), thresholds=steps((1, YELLOW)), graph=True,
            )),
            (4, stat(
                "Unknown", "Nodes that answer and whose ports nobody can judge. Silence is not health.",
                query(nodes("unknown")), thresholds=steps((1, PURPLE)), graph=True,
            )),
            (4, stat(
                "Silent", "Targets of ibmon that do not answer Prometheus. Nothing is known of these nodes.",
                query(or_zero(f"count({SILENT})"), instant=True), thresholds=steps((1, PURPLE)),
            )),
            (4, stat(
                "Drained by ibmon", "Nodes that ibmon keeps out of service now: asked for and read back.",
                query(or_zero(f"sum({of_node('ibmon_drain_active')})")), thresholds=steps((1, BLUE)), graph=True,
            )),
            (4, stat(
                "Fit", "Nodes on which nothing is wrong.", query(nodes("fit")), thresholds=steps(), graph=True,
            )),
        ]),
        (10, [
            (12, table(
                "What is wrong now",
                "Every finding that alerts, the worst first: what holds on which port. Choose a node or a rail to look "
                "closer.",
                query(FINDINGS, table=True),
                columns={
                    "Value": "severity", "node": "node", "rule": "rule", "device": "device", "port": "port",
                    "rail": "rail",
                },
                overrides=[
                    coloured("severity", SEVERITY_WORDS, custom_width=90), field("node", links=[TO_NODE]),
                    field("rail", links=[TO_RAIL], custom_width=60), field("port", custom_width=60),
                ],
                sort=("severity", True), no_value="nothing is wrong",
            )),
            (12, table(
                "Node and rail",
                "Health of each compute port: a row a node, a column a rail. A bad row is the node's fault, a bad "
                "column the leaf's.",
                query(MATRIX, table=True),
                columns={},
                transformations=[
                    {"id": "sortBy", "options": {"sort": [{"field": "rail", "desc": False}]}},
                    {"id": "groupingToMatrix", "options": {
                        "rowField": "node", "columnField": "rail", "valueField": "Value", "emptyValue": "null",
                    }},
                ],
                overrides=[
                    {"matcher": {"id": "byType", "options": "number"}, "properties": [
                        {"id": "mappings", "value": HEALTH_WORDS},
                        {"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic"}},
                        {"id": "custom.width", "value": 86},
                    ]},
                    field("node\\rail", displayName="node", links=[TO_NODE], custom_width=90),
                ],
                no_value="every node is fit",
            )),
        ]),
        (8, [
            (12, series(
                "Nodes by verdict", "How many nodes were fit, watched, unknown and unfit. What is missing to the top "
                "was not scraped.",
                query(f"sum by (fitness) ({of_node('(ibmon_node_fitness == 1)')})", "{{fitness}}"), stacked=True,
                overrides=[fixed(word.value, color) for word, (_, color) in FITNESS.items()], decimals=0,
            )),
            (12, series(
                "Drains in force, and drains that were due and not made",
                "A drain that is due may be kept back: by the mode (observe and alert never drain), a limit, a stop, "
                "maintenance. The legend names the reason.",
                [
                    query(or_zero(f"sum({of_node('ibmon_drain_active')})"), "in force"),
                    query(f"sum by (code) ({of_node('(ibmon_drain_blocked == 1)')})", "not made: {{code}}"),
                ],
                stepped=True, decimals=0, overrides=[
                    fixed("in force", BLUE), fixed("not made: (mode|stop|maintenance)", GREY),
                    fixed("not made: (limit|max)_.*", ORANGE), fixed("not made: scheduler_.*", RED),
                ],
            )),
        ]),
        (8, [
            (8, bars(
                "Age of drains", "For how long ibmon has kept each node out of service. After a day somebody should "
                "ask who repairs it.",
                query(f"topk(10, max by (node) ({DRAINED_FOR}))", "{{node}}", instant=True), unit="s",
                thresholds=steps((3600, YELLOW), (86_400, RED), base=BLUE), no_value="no node is drained",
            )),
            (8, bars(
                "Links that flapped most", "Times that a port went down and came back, within the time shown above. "
                "Three in a day on one link are no chance.",
                query(
                    "topk(10, round(sum by (node, device, port) ("
                    + of_node("(increase(ibmon_flap_episodes_total[$__range]) > 0)") + ")) > 0)",
                    "{{node}} {{device}}/{{port}}", instant=True,
                ),
                unit="short", thresholds=steps((2, YELLOW), (3, RED), base=BLUE), no_value="no link flapped",
            )),
            (8, bars(
                "Highest error ratios", "Symbol errors for each bit that the link could carry within the time shown "
                f"above. Good links stay below 1e-15; {SYMBOL_ERRORS.warning:g} warns.",
                query(
                    f"topk(10, sum by (node, device, port) ({of_node(ERRORS)}))",
                    "{{node}} {{device}}/{{port}}", instant=True,
                ),
                unit="sci",
                thresholds=steps((SYMBOL_ERRORS.warning, YELLOW), (SYMBOL_ERRORS.critical, RED), base=BLUE),
                no_value="no link counted symbol errors", decimals=1,
            )),
        ]),
        (8, [
            (10, table(
                "Nodes that nobody can judge", "Unknown, silent and stale nodes, and why nothing can be said of them.",
                query(f"max by (node, instance, why) ({NOT_SEEN})", table=True),
                columns={"why": "why", "node": "node", "instance": "target"}, without=["Value"],
                overrides=[field("node", links=[TO_NODE])], no_value="every node is seen",
            )),
            (14, series(
                "Ports down by rail, and fabric events",
                "Compute ports of a rail that are not ACTIVE. Three or more at once speak of the leaf and not of the "
                "nodes: from there the controller tells of a fabric event and withholds drains.",
                [
                    query(
                        f"count by (rail) ({of_node(on_rail('(ibmon_port_state < 4)'))})", "rail {{rail}}: ports down",
                        interval=COARSE,
                    ),
                    query(
                        "max by (group, rail, rule) (ibmon_controller_fabric_event)",
                        "event: {{rule}} on rail {{rail}} of {{group}}",
                    ),
                ],
                stepped=True, thresholds=steps((3, RED)), no_value="no port is down", decimals=0,
            )),
        ]),
    ),
)  # fmt: skip
