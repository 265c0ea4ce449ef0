"""ibmon itself: whether the daemons and the controller see, judge, act and tell as they should."""

from shared import (
    BLUE,
    FITNESS,
    GREEN,
    NODE,
    RED,
    YELLOW,
    bars,
    board,
    field,
    fixed,
    mapping,
    of_node,
    or_zero,
    placed,
    query,
    series,
    stat,
    steps,
    table,
    variable,
)

SILENT = "up == 0 and on (job) group by (job) (last_over_time(ibmon_build_info[1d]))"
STOPPED = mapping({0: ("acting", GREEN), 1: ("STOPPED", RED)})
WORST = "topk(10, max by (node, device) ({}))"
CONTROLLER = "ibmon_controller_"
FULL = "(ibmon_port_counter_saturated == 1)"
TURN = (
    "(rate(ibmon_tick_duration_seconds_sum[$__rate_interval]) "
    "/ (rate(ibmon_tick_duration_seconds_count[$__rate_interval]) > 0))"
)


def spread(expr: str) -> list:
    """The worst and the median of all nodes."""
    named = of_node(expr)
    return [query(f"max({named})", "worst"), query(f"quantile(0.5, {named})", "median")]


def because(expr: str, why: str) -> str:
    """The series with a label that tells why they are shown."""
    return f'label_replace({expr}, "why", "{why}", "", "")'


dashboard = board(
    "ibmon-self",
    "ibmon / ibmon itself",
    "Whether the daemons and the controller see, judge, act and tell as they should.",
    variables=[variable("node", "Node", "label_values(ibmon_node_info, node)")],
    panels=placed(
        (4, [
            (4, stat(
                "Daemons", "Nodes whose daemon was scraped.", query(f"count({of_node('ibmon_up')})"), graph=True,
            )),
            (4, stat(
                "Silent", "Targets of ibmon that do not answer Prometheus.",
                query(or_zero(f"count({SILENT})"), instant=True), thresholds=steps((1, RED)),
            )),
            (4, stat(
                "Stale devices", "Devices whose state was read more than a minute ago.",
                query(or_zero(f"count({of_node('(ibmon_sample_age_seconds > 60)')})")), thresholds=steps((1, RED)),
                graph=True,
            )),
            (4, stat(
                "Hanging reads", "Devices a read of which does not come back.",
                query(or_zero(f"count({of_node('(ibmon_device_stalled == 1)')})")), thresholds=steps((1, RED)),
                graph=True,
            )),
            (4, stat(
                "Deliveries waiting", "Alerts and webhooks that a target has not been told yet.",
                query(or_zero(f"sum({of_node('(ibmon_outbox_pending > 0)')})")),
                thresholds=steps((1, YELLOW), (100, RED)), graph=True,
            )),
            (4, stat(
                "Invalid configurations", "Daemons that refused to load their configuration file and go on with an "
                "older one.",
                query(or_zero(f"count({of_node('(ibmon_config_valid == 0)')})")), thresholds=steps((1, RED)),
                graph=True,
            )),
        ]),
        "Seeing",
        (8, [
            (8, bars(
                "Oldest values", "Seconds since each device's state was read, the ten oldest. Up to the state interval "
                "(5 s) is normal, three of them are stale.",
                query(WORST.format(of_node("ibmon_sample_age_seconds")), "{{node}} {{device}}", instant=True), unit="s",
                thresholds=steps((15, YELLOW), (60, RED)), no_value="no device", decimals=0,
            )),
            (8, series(
                "Reads that failed", "Failed reads per second by error. EINVAL and EOPNOTSUPP are files that a card "
                "does not serve; ENOLINK is a dead card.",
                query(
                    f"sum by (errno) ({of_node('rate(ibmon_read_errors_total[$__rate_interval])')}) > 0", "{{errno}}"
                ),
                unit="ops", no_value="no read failed",
            )),
            (8, table(
                "Blind spots", "Rules whose source cannot be read, and counters that stand at the maximum of their "
                "field: what they look for can happen unseen.",
                query(
                    " or ".join((
                        because(f"count by (rule) ({of_node('(ibmon_rule_available == 0)')})", "cannot be judged"),
                        because(f"count by (counter) ({of_node(FULL)})", "stands at its maximum"),
                    )),
                    table=True,
                ),
                columns={"rule": "rule", "counter": "counter", "why": "what", "Value": "how many"},
                overrides=[
                    field("rule", custom_width=130), field("counter", custom_width=120),
                    field("what", custom_width=165), field("how many", custom_width=80),
                ],
                no_value="no blind spot",
            )),
        ]),
        "Judging and saving",
        (8, [
            (8, series(
                "A turn of the loop", "Mean time that a turn of the engine's loop takes: half of the nodes are below "
                "the median.",
                spread(TURN), unit="s",
            )),
            (8, bars(
                "Slowest loops", "Turns of the loop per second, the ten slowest nodes. None for minutes: the daemon "
                "answers and no longer judges.",
                query(
                    f"bottomk(10, max by (node) ({of_node('rate(ibmon_ticks_total[5m])')}))", "{{node}}", instant=True
                ),
                unit="ops", thresholds=steps((0.01, GREEN), base=RED), no_value="no daemon", decimals=2,
            )),
            (8, series(
                "Saves that failed", "Saves of the state that failed. While they do nothing is given back.",
                query(f"sum by (node) ({of_node('increase(ibmon_state_save_errors_total[$__rate_interval])')}) > 0",
                      "{{node}}"),
                no_value="every save worked", thresholds=steps((1, RED)),
            )),
        ]),
        (8, [
            (8, series(
                "Memory", "Resident memory of the daemons. About 40 MiB is normal.",
                spread("process_resident_memory_bytes"), unit="bytes",
            )),
            (8, series(
                "CPU", "Share of one CPU that the daemons use.",
                spread("rate(process_cpu_seconds_total[$__rate_interval])"),
                unit="percentunit",
            )),
            (8, table(
                "Versions and configurations", "How many daemons run which version with which configuration. A single "
                "one that differs was forgotten, or is the trial.",
                query(
                    "count by (version, python, hash) (ibmon_build_info * on (job, instance) group_left (hash) "
                    f"ibmon_config_info * on (job, instance) group_left (node) {NODE})",
                    table=True,
                ),
                columns={"Value": "nodes", "version": "ibmon", "python": "Python", "hash": "configuration"},
                sort=("nodes", False), no_value="no daemon",
            )),
        ]),
        "Telling and acting",
        (8, [
            (8, series(
                "Deliveries that failed", "Attempts per minute to tell a target that failed, by target.",
                query(
                    f"60 * sum by (target) ({of_node('rate(ibmon_delivery_failures_total[$__rate_interval])')}) > 0",
                    "{{target}}",
                ),
                no_value="every attempt arrived", thresholds=steps((1, RED)),
            )),
            (8, series(
                "Deliveries", "Attempts per minute, by target.",
                query(
                    f"60 * sum by (target) ({of_node('rate(ibmon_delivery_attempts_total[$__rate_interval])')})",
                    "{{target}}",
                ),
                no_value="no target is configured",
            )),
            (8, series(
                "Calls to the scheduler that failed", "By the nodes' own drains; with a controller only that "
                "one calls.",
                query(
                    f"sum by (code) ({of_node('increase(ibmon_action_errors_total[$__rate_interval])')}) > 0",
                    "{{code}}",
                ),
                no_value="no call failed",
            )),
        ]),
        "Controller",
        (4, [
            (4, stat(
                "Leaders", "Controllers that lead. Exactly one must.",
                query(f"sum({CONTROLLER}leader)", instant=True), thresholds=steps((1, GREEN), (2, RED), base=RED),
                no_value="no controller",
            )),
            (4, stat(
                "Stop", "Whether somebody has stopped all writes to the scheduler.",
                query(f"max({CONTROLLER}stop)", instant=True), words=STOPPED, no_value="no controller",
            )),
            (4, stat(
                "Nodes reporting", "Share of the nodes seen within a day that report. Below the quorum (90 %) nothing "
                "is drained.",
                query(f"max({CONTROLLER}quorum_ratio)", instant=True), unit="percentunit",
                thresholds=steps((0.9, YELLOW), (0.99, GREEN), base=RED), no_value="no controller",
            )),
            (4, stat(
                "Nodes missing", "Nodes whose report did not come in time.",
                query(f"max({CONTROLLER}nodes_missing)", instant=True), thresholds=steps((1, YELLOW)),
                no_value="no controller",
            )),
            (4, stat(
                "Scheduler read", "Seconds since the controller last read the scheduler.",
                query(f"max({CONTROLLER}scheduler_age_seconds)", instant=True), unit="s",
                thresholds=steps((60, YELLOW), (300, RED)), no_value="no controller",
            )),
            (4, stat(
                "Oldest drain", "Age of the oldest drain that the controller holds.",
                query(f"time() - min({CONTROLLER}oldest_drain_timestamp_seconds > 0)", instant=True), unit="s",
                thresholds=steps((3600, YELLOW), (86_400, RED), base=BLUE), no_value="none", decimals=0,
            )),
        ]),
        (8, [
            (8, series(
                "Nodes by report", "Verdicts that the nodes report to the controller.",
                query(f"max by (fitness) ({CONTROLLER}nodes)", "{{fitness}}"), stacked=True, no_value="no controller",
                overrides=[fixed(word.value, color) for word, (_, color) in FITNESS.items()],
            )),
            (8, series(
                "Drains", "Drains at the scheduler by whose they are: held is ours, pending was asked for, withheld "
                "waits for a fabric event, foreign and orphaned are left alone.",
                query(f"max by (state) ({CONTROLLER}drains)", "{{state}}"), stepped=True, no_value="no controller",
            )),
            (8, bars(
                "Limits in use", "Drains of each pool, as a share of those that its limit allows.",
                query(f"max by (pool) ({CONTROLLER}limit_used / ({CONTROLLER}limit_allowed > 0))", "{{pool}}",
                      instant=True),
                unit="percentunit", thresholds=steps((0.75, YELLOW), (1, RED)), no_value="no controller",
            )),
        ]),
        (8, [
            (8, series(
                "Reports refused", "Reports per minute that do not count, by reason: a key, a clock, a repetition, a "
                "name.",
                query(
                    f'60 * sum by (outcome) (rate({CONTROLLER}reports_total{{outcome!="accepted"}}[$__rate_interval])) '
                    "> 0",
                    "{{outcome}}",
                ),
                no_value="no report was refused", thresholds=steps((1, YELLOW)),
            )),
            (8, series(
                "Decisions", "What the controller answered, per minute, with the reason where it did not drain.",
                query(f"60 * sum by (decision, code) (rate({CONTROLLER}decisions_total[$__rate_interval])) > 0",
                      "{{decision}} {{code}}"),
                no_value="no decision",
            )),
            (8, series(
                "Time of a report, and failed calls", "The slowest of a hundred reports, and failed calls to the "
                "scheduler per minute by code.",
                [
                    query(
                        "histogram_quantile(0.99, sum by (le) "
                        f"(rate({CONTROLLER}report_seconds_bucket[$__rate_interval])))",
                        "report, 99 %",
                    ),
                    query(f"60 * sum by (code) (rate({CONTROLLER}scheduler_errors_total[$__rate_interval])) > 0",
                          "failed calls: {{code}}"),
                ],
                unit="s", no_value="no controller",
                overrides=[{"matcher": {"id": "byRegexp", "options": "failed calls.*"}, "properties": [
                    {"id": "unit", "value": "short"}, {"id": "custom.axisPlacement", "value": "right"},
                ]}],
            )),
        ]),
        (7, [
            (24, series(
                "Events in the fabric", "Fabric events that began, by rule.",
                query(f"sum by (rule) (increase({CONTROLLER}fabric_events_total[$__rate_interval])) > 0", "{{rule}}"),
                no_value="no fabric event",
            )),
        ]),
    ),
)  # fmt: skip
