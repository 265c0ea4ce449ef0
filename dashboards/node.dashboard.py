"""Node: one node with all its ports, what was found there and what happened."""

from shared import (
    BLUE,
    FITNESS_WORDS,
    GREEN,
    GROSS_ERRORS,
    HEALTH_WORDS,
    ORANGE,
    PHYSICAL_WORDS,
    PURPLE,
    RED,
    SEVERITY_WORDS,
    STATE_WORDS,
    SYMBOL_ERRORS,
    YELLOW,
    annotation,
    bars,
    board,
    coloured,
    field,
    fitness,
    health,
    link,
    mapping,
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

AT = 'instance=~"$instance"'
PORT = "{{device}}/{{port}}"
TO_RAIL = link("Rail ${__value.text} across nodes", "ibmon-incident", rail="${__value.text}")
TO_FLEET = link("All nodes", "ibmon-fleet")
DRAIN = {0: ("not wanted", GREEN), 1: ("wanted, not made", ORANGE), 2: ("in force", BLUE)}
DRAIN_WORDS = mapping(DRAIN)
# Two rows of one panel share their words: the drain's begin at 10.
VERDICT_AND_DRAIN = [*FITNESS_WORDS, *mapping({10 + code: word for code, word in DRAIN.items()})]
WIDTHS = {"device": 100, "port": 60, "flaps": 70, "role": 120, "lanes": 70}
THERE = mapping({0: ("there", GREEN), 1: ("missing", RED)})
LINE_RATE = {
    "matcher": {"id": "byName", "options": "line rate"},
    "properties": [
        {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}},
        {"id": "color", "value": {"mode": "fixed", "fixedColor": RED}},
        {"id": "custom.fillOpacity", "value": 0},
    ],
}


def by_port(expr: str) -> str:
    """The largest of the series of each port."""
    return f"max by (device, port) ({expr})"


def traffic(way: str, other: str) -> list:
    """Bits per second by port, from node_exporter's names where a site keeps only those."""
    ours = f"rate(ibmon_port_{way}_data_bytes_total{{{AT}}}[$__rate_interval])"
    theirs = f"rate(node_infiniband_port_data_{other}_bytes_total{{{AT}}}[$__rate_interval])"
    return [
        query(f"8 * {by_port(f'{ours} or {theirs}')}", PORT),
        query(f"8 * max(ibmon_port_expected_rate_bytes_per_second{{{AT}}})", "line rate"),
    ]


def per_hour(*names: str) -> list:
    """Rises of error counters per hour, by port; series that never rise are left out."""
    return [
        query(f"max by (device, port) (increase(ibmon_port_{name}_total{{{AT}}}[1h])) > 0", f"{PORT} {name}")
        for name in names
    ]


def rates(*names: str) -> list:
    """Rises of counters per second, by port; series that do not rise are left out."""
    return [
        query(f"sum by (device, port) (rate(ibmon_port_{name}_total{{{AT}}}[$__rate_interval])) > 0", f"{PORT} {name}")
        for name in names
    ]


dashboard = board(
    "ibmon-node",
    "ibmon / Node",
    "One node: its verdict, its ports against what they should be, what was found, and what happened when.",
    variables=[
        variable("node", "Node", "label_values(ibmon_node_info, node)", many=False),
        variable("instance", "Target", 'label_values(ibmon_node_info{node="$node"}, instance)', hide=True),
    ],
    annotations=[
        annotation("Findings", f'max by (rule, device, port) (ibmon_finding{{{AT},severity!="info"}})', RED,
                   "{{rule}}", "{{device}}/{{port}}"),
        annotation("Link went down", f"max by (device, port) (increase(ibmon_port_link_downed_total{{{AT}}}[1m])) > 0",
                   ORANGE, "link down", "{{device}}/{{port}}"),
        annotation("Drained by ibmon", f"max by (instance) (ibmon_drain_active{{{AT}}}) == 1", BLUE, "drained",
                   "{{instance}}"),
        annotation("Maintenance", f"max by (instance) (ibmon_maintenance{{{AT}}}) == 1", PURPLE, "maintenance",
                   "{{instance}}"),
        annotation("ibmon started",
                   f"max by (instance) (resets(ibmon_ticks_total{{{AT}}}[1m])) > 0", GREEN, "ibmon started",
                   "{{instance}}"),
    ],
    panels=placed(
        (4, [
            (5, stat(
                "Verdict", "Whether the node is fit for multi-node jobs, as ibmon judges it now.",
                query(f"max({fitness(AT)})", instant=True), words=FITNESS_WORDS, links=[TO_FLEET],
            )),
            (4, stat(
                "Drain", "Whether ibmon keeps the node out of service. Wanted and not made: the mode, a limit or a "
                "stop is in the way.",
                query(f"max(ibmon_drain_wanted{{{AT}}}) + max(ibmon_drain_active{{{AT}}})", instant=True),
                words=DRAIN_WORDS,
            )),
            (4, stat(
                "Ports not ok", "Ports whose health is neither ok nor ignored.",
                query(or_zero(f'count(ibmon_port_health{{{AT},health!~"ok|ignored"}} == 1)'), instant=True),
                thresholds=steps((1, RED)),
            )),
            (4, stat(
                "Devices missing", "Devices that the inventory expects and that are not in class/infiniband.",
                query(f"max(ibmon_devices_expected{{{AT}}}) - max(ibmon_devices_present{{{AT}}})", instant=True),
                thresholds=steps((1, RED)),
            )),
            (4, stat(
                "Oldest values", "Seconds since the state of each device was read, the oldest. More than three "
                "intervals (15 s) is stale.",
                query(f"max(ibmon_sample_age_seconds{{{AT}}})"), unit="s", thresholds=steps((15, YELLOW), (60, RED)),
                graph=True, decimals=0,
            )),
            (3, stat(
                "Out of service for", "Time since the drain is wanted or in force.",
                query(f"time() - max(ibmon_drain_since_timestamp_seconds{{{AT}}})", instant=True), unit="s",
                thresholds=steps((3600, YELLOW), (86_400, RED), base=BLUE), no_value="in service", decimals=0,
            )),
        ]),
        (12, [
            (24, table(
                "Ports", "Every port that is there or should be: its link, its rate beside the expected one, and how "
                "often it flapped since the daemon knows it. The worst stand first.",
                [
                    query(f"max by (device, port, role, rail, netdev) (ibmon_port_info{{{AT}}})", table=True),
                    query(by_port(health(AT)), table=True),
                    query(by_port(f"ibmon_port_state{{{AT}}}"), table=True),
                    query(by_port(f"ibmon_port_physical_state{{{AT}}}"), table=True),
                    query(f"8 * {by_port(f'ibmon_port_rate_bytes_per_second{{{AT}}}')}", table=True),
                    query(
                        by_port(
                            f"(ibmon_port_rate_bytes_per_second{{{AT}}} and ibmon_port_state{{{AT}}} >= 4) "
                            f"/ ibmon_port_expected_rate_bytes_per_second{{{AT}}}"
                        ),
                        table=True,
                    ),
                    query(by_port(f"ibmon_port_width_lanes{{{AT}}}"), table=True),
                    query(by_port(f"ibmon_flap_episodes_total{{{AT}}}"), table=True),
                    query(by_port(f"ibmon_port_missing{{{AT}}}"), table=True),
                ],
                columns={
                    "device": "device", "port": "port", "Value #B": "health", "Value #C": "state", "Value #E": "rate",
                    "Value #F": "of expected", "Value #H": "flaps", "role": "role", "rail": "rail",
                    "Value #D": "physical state", "Value #G": "lanes", "Value #I": "presence",
                    "netdev": "network interface",
                },
                overrides=[
                    coloured("health", HEALTH_WORDS, custom_width=110), coloured("state", STATE_WORDS, custom_width=90),
                    coloured("physical state", PHYSICAL_WORDS, custom_width=120),
                    coloured("presence", THERE, custom_width=90), field("rate", unit="bps", custom_width=100),
                    field(
                        "of expected", unit="percentunit", decimals=0, custom_width=100,
                        thresholds={"mode": "absolute", "steps": steps((0.999, GREEN), base=RED)},
                        custom_cellOptions={"type": "color-text"},
                    ),
                    field("rail", links=[TO_RAIL], custom_width=60),
                    *(field(name, custom_width=width) for name, width in WIDTHS.items()),
                ],
                sort=("health", True), no_value="the node has no ports", without=["Value #A"],
            )),
        ]),
        (9, [
            (9, table(
                "What is wrong now", "Findings that hold on this node. `ibmon explain RULE` tells what each means and "
                "what to do.",
                query(f"max by (rule, device, port) ({severity(AT)})", table=True),
                columns={"Value": "severity", "rule": "rule", "device": "device", "port": "port"},
                overrides=[coloured("severity", SEVERITY_WORDS, custom_width=100)], sort=("severity", True),
                no_value="nothing is wrong",
            )),
            (15, timeline(
                "Health of each port", "How each port was judged, over time. Recovering: the fault is gone, and nobody "
                "relies on it yet.",
                query(by_port(health(AT)), PORT), HEALTH_WORDS,
            )),
        ]),
        (4, [
            (24, timeline(
                "Verdict and drain", "The node's verdict, and whether ibmon kept it out of service.",
                [
                    query(f"max({fitness(AT)})", "verdict"),
                    query(f"10 + max(ibmon_drain_wanted{{{AT}}}) + max(ibmon_drain_active{{{AT}}})", "drain"),
                ],
                VERDICT_AND_DRAIN,
            )),
        ]),
        "Traffic",
        (10, [
            (12, series(
                "Received", "Data received by each port, beside the rate that the fastest one should run at.",
                traffic("rcv", "received"), unit="bps", overrides=[LINE_RATE], beside=True,
            )),
            (12, series(
                "Sent", "Data sent by each port, beside the rate that the fastest one should run at.",
                traffic("xmit", "transmitted"), unit="bps", overrides=[LINE_RATE], beside=True,
            )),
        ]),
        "Errors",
        (9, [
            (12, series(
                "Symbol errors in the last hour, as a bit error ratio",
                f"Symbol errors for each bit that the link could carry. The lines are the limits: "
                f"{SYMBOL_ERRORS.warning:g} and {SYMBOL_ERRORS.critical:g} (symbol-errors), {GROSS_ERRORS.critical:g} "
                "(gross-errors). One error an hour at 400 Gb/s is 7e-16.",
                query(by_port(ratio("1h", "3600", AT)) + " > 0", PORT), unit="sci", log=True, minimum=1e-16,
                thresholds=steps(
                    (SYMBOL_ERRORS.warning, YELLOW), (SYMBOL_ERRORS.critical, ORANGE), (GROSS_ERRORS.critical, RED)
                ),
                no_value="no symbol errors within the hour",
            )),
            (12, series(
                "Other errors in the last hour", "Rises of error counters; a counter that did not move is not shown. "
                "Receive errors beside remote physical errors are made on another hop.",
                per_hour(
                    "link_downed", "link_error_recovery", "rcv_errors", "rcv_remote_physical_errors",
                    "local_link_integrity_errors", "excessive_buffer_overrun_errors",
                ),
                no_value="no counter of errors moved", beside=True,
            )),
        ]),
        (8, [
            (12, series(
                "Retransmissions", "Packets per second that were sent or asked for again. A peer that died raises them "
                "too: compare with the peers.",
                rates(
                    "hw_out_of_sequence", "hw_packet_seq_err", "hw_local_ack_timeout_err", "hw_rnr_nak_retry_err",
                    "hw_roce_slow_restart",
                ),
                unit="pps", no_value="nothing was sent again", beside=True,
            )),
            (12, series(
                "Congestion", "Ticks per second in which a port had data and no credit to send it, packets that were "
                "dropped for waiting, and congestion notices. A matter of the fabric's load and not of this node.",
                rates("xmit_wait", "xmit_discards", "hw_np_cnp_sent", "hw_rp_cnp_handled"), unit="cps",
                no_value="no congestion", beside=True,
            )),
        ]),
        "Host",
        (10, [
            (8, bars(
                "PCIe link", "Speed times width of each adapter's link to the host, as a share of what both ends can "
                "do. Less than all of it slows the port.",
                query(
                    f"max by (device) (ibmon_pcie_link_speed_transfers_per_second{{{AT}}} "
                    f"* ibmon_pcie_link_width_lanes{{{AT}}} / (ibmon_pcie_link_speed_transfers_per_second_max{{{AT}}} "
                    f"* ibmon_pcie_link_width_lanes_max{{{AT}}}))",
                    "{{device}}", instant=True,
                ),
                unit="percentunit", thresholds=steps((0.999, GREEN), base=RED), no_value="no PCIe link is known",
            )),
            (8, series(
                "Module temperature", "The hottest cable or transceiver module of each adapter; 70 degrees warns, at "
                "80 modules switch themselves off.",
                query(f"max by (device) (ibmon_module_temperature_celsius{{{AT}}})", "{{device}}"), unit="celsius",
                thresholds=steps((70, YELLOW), (80, RED)), minimum=20,
            )),
            (8, series(
                "Holds that run", "Seconds until a fault that stands becomes critical, by rule. None: nothing is about "
                "to.",
                query(f"max by (rule, device, port) (ibmon_port_hold_seconds{{{AT}}})", f"{{{{rule}}}} {PORT}"),
                unit="s", no_value="no hold runs",
            )),
        ]),
    ),
)  # fmt: skip
