"""Incident: one rail, leaf or rule across all nodes at one time, for whoever comes from an alert."""

from shared import (
    BLUE,
    HEALTH_WORDS,
    NODE,
    ORANGE,
    PURPLE,
    RED,
    SEVERITY_WORDS,
    SYMBOL_ERRORS,
    YELLOW,
    annotation,
    answers,
    bars,
    board,
    coloured,
    field,
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
    timeline,
    variable,
)

TO_NODE = link("Node ${__value.text}", "ibmon-node", node="${__value.text}")
INFO = 'ibmon_port_info{role=~"$role",rail=~"$rail"}'
RULE = 'rule=~"$rule"'
NO_PORT = f'{RULE},port=""'
WHERE = "{{node}} {{device}}/{{port}} rail {{rail}}"


def here(expr: str) -> str:
    """The series of the chosen rails and nodes."""
    return of_node(on_rail(expr, INFO))


# Which targets had trouble is asked once for the whole time, so that the timeline reads only theirs.
TROUBLED = (
    'count by (instance) (min_over_time(ibmon_port_health{health="ok"}[$__range]) == 0 '
    'unless on (job, instance, device, port) ibmon_port_health{health="ignored"} == 1)'
)
AT = 'instance=~"$troubled"'
AFFECTED = f'min_over_time(ibmon_port_health{{{AT},health="ok"}}[$__range] @ end()) == 0'


def there(expr: str) -> str:
    """The same of targets with trouble: `expr` has selected them."""
    return of_node(on_rail(expr, INFO.replace("{", f"{{{AT},")), NODE.replace("{", f"{{{AT},"))


DOWN = there(f"(ibmon_port_state{{{AT}}} < 4)")
RECEIVED = f"rate(ibmon_port_rcv_data_bytes_total{{{AT}}}[$__rate_interval])"
FOUND = of_node(severity(RULE))
FINDINGS = (
    f"max by (node, rail, device, port, rule) ({on_rail(FOUND, INFO)} "
    f"or {of_node(severity(NO_PORT))} and on (job, instance, device) {INFO})"
)
ERRORS = f"({ratio('$__range', '$__range_s')} > 0)"
LOST = there(f"(max_over_time(ibmon_port_state{{{AT}}}[1h]) >= 4 and ibmon_port_state{{{AT}}} < 4)")

dashboard = board(
    "ibmon-incident",
    "ibmon / Incident",
    "One rail, one leaf or one rule across all nodes: who is hit, who was first, and what the fabric did meanwhile.",
    variables=[
        variable("rail", "Rail", "label_values(ibmon_port_info, rail)"),
        variable("rule", "Rule", "label_values(ibmon_finding, rule)"),
        variable("node", "Node (choose those of a leaf)", "label_values(ibmon_node_info, node)"),
        variable("role", "Role", "label_values(ibmon_port_info, role)"),
        answers("troubled", "Targets with trouble", TROUBLED, "instance"),
    ],
    annotations=[
        annotation("Fabric event", "max by (group, rail, rule) (ibmon_controller_fabric_event) > 0", RED,
                   "fabric event: {{rule}}", "rail {{rail}} of {{group}}"),
        annotation("Link went down",
                   f"max by (node, device, port) ({here('(increase(ibmon_port_link_downed_total[1m]) > 0)')})",
                   ORANGE, "link down", "{{node}} {{device}}/{{port}}"),
        annotation("Drained by ibmon", f"max by (node) ({of_node('(ibmon_drain_active == 1)')})", BLUE, "drained",
                   "{{node}}"),
    ],
    panels=placed(
        (4, [
            (4, stat(
                "Nodes hit", "Nodes with a port of these rails that is not ACTIVE now. From three on the leaf is more "
                "likely to blame than the nodes.",
                query(or_zero(f"count(group by (node) ({DOWN}))")), thresholds=steps((1, YELLOW), (3, RED)), graph=True,
            )),
            (4, stat(
                "Ports not ACTIVE", "Ports of these rails whose link does not carry data now.",
                query(or_zero(f"count({DOWN})")), thresholds=steps((1, YELLOW), (3, RED)), graph=True,
            )),
            (4, stat(
                "Lost within the hour", "Ports that were ACTIVE less than an hour ago and are not now: the incident "
                "itself, without what was broken before.",
                query(or_zero(f"count({LOST})"), instant=True), thresholds=steps((1, YELLOW), (3, RED)),
            )),
            (4, stat(
                "Share of these ports", "Ports that are not ACTIVE, of all ports chosen above.",
                query(f"(count({DOWN}) or vector(0)) / count({here('ibmon_port_state')})", instant=True),
                unit="percentunit", thresholds=steps((0.01, YELLOW), (0.5, RED)), decimals=1,
            )),
            (4, stat(
                "Drained here", "Nodes chosen above that ibmon keeps out of service.",
                query(or_zero(f"sum({of_node('ibmon_drain_active')})"), instant=True), thresholds=steps((1, BLUE)),
            )),
            (4, stat(
                "Drains withheld", "Drains that the controller holds back because the fabric is to blame.",
                query(or_zero('sum(ibmon_controller_drains{state="withheld"})'), instant=True),
                thresholds=steps((1, PURPLE)), no_value="no controller",
            )),
        ]),
        (11, [
            (14, timeline(
                "Who, and since when", "Every chosen port that was not ok all the time, on one time axis: what began "
                "together has one cause. The first one to turn is where to look.",
                query(
                    f"max by (node, device, port, rail) ({there(health(AT))} and on (job, instance, device, port) "
                    f"({AFFECTED}))",
                    WHERE,
                ),
                HEALTH_WORDS, no_value="every chosen port was ok all the time",
            )),
            (10, table(
                "What is wrong now", "Findings on the chosen rails and nodes, the worst first.",
                query(FINDINGS, table=True),
                columns={
                    "Value": "severity", "node": "node", "rule": "rule", "device": "device", "port": "port",
                    "rail": "rail",
                },
                overrides=[
                    coloured("severity", SEVERITY_WORDS, custom_width=90), field("node", links=[TO_NODE]),
                    field("port", custom_width=50), field("rail", custom_width=50), field("device", custom_width=90),
                ],
                sort=("severity", True), no_value="nothing is wrong here",
            )),
        ]),
        (8, [
            (12, series(
                "Ports down by rail", "Compare the rails: one that stands out is one leaf, all together are a power "
                "feed, a subnet manager or a change.",
                query(f"count by (rail) ({DOWN})", "rail {{rail}}"), stepped=True, thresholds=steps((3, RED)),
                no_value="no port is down", decimals=0,
            )),
            (12, series(
                "Traffic of the nodes hit", "Data that nodes with trouble received on each rail. A hole in all "
                "rails is the job, a hole in one is the rail.",
                query(f"8 * sum by (rail) ({there(RECEIVED)})", "rail {{rail}}"),
                unit="bps",
            )),
        ]),
        (8, [
            (8, bars(
                "Links that went down", "Times that each port went down within the time shown above.",
                query(
                    "topk(15, round(sum by (node, device, port) "
                    f"({here('(increase(ibmon_port_link_downed_total[$__range]) > 0)')})) > 0)",
                    "{{node}} {{device}}/{{port}}", instant=True,
                ),
                unit="short", thresholds=steps((2, YELLOW), (3, RED), base=BLUE), no_value="no link went down",
            )),
            (8, bars(
                "Error ratios", "Symbol errors for each bit that the link could carry within the time shown above.",
                query(
                    "topk(15, sum by (node, device, port) "
                    f"({here(ERRORS)}))",
                    "{{node}} {{device}}/{{port}}", instant=True,
                ),
                unit="sci",
                thresholds=steps((SYMBOL_ERRORS.warning, YELLOW), (SYMBOL_ERRORS.critical, RED), base=BLUE),
                no_value="no link counted symbol errors", decimals=1,
            )),
            (8, timeline(
                "Fabric events", "What the controller took for one event in the fabric, by the number of nodes hit.",
                query("max by (group, rail, rule) (ibmon_controller_fabric_event) > 0",
                      "{{rule}} rail {{rail}} of {{group}}"),
                [{"type": "range", "options": {"from": 1, "to": None, "result": {"color": RED, "index": 0}}}],
                no_value="no fabric event",
            )),
        ]),
    ),
)  # fmt: skip
