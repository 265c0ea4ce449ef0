"""The rule table: one row a rule, with its defaults and the source of each.

A row's check answers what a read shows; time (holds, recovery, severity) is `evaluate.py`'s business. Docs, `explain`,
configuration keys and alert rules come from the same rows. Sources are named in docs/rules.md.
"""

from __future__ import annotations

from typing import Final

from ibmon.health import checks, counts
from ibmon.health.settings import Rule
from ibmon.model import Mode, PortHealth

MINUTE: Final = 60.0
HOUR: Final = 3600.0
DAY: Final = 86400.0

_WAITS = "by itself, when the condition has been gone for the recover time"

RULES: tuple[Rule, ...] = (
    Rule(
        id="port-down", check=checks.port_down, health=PortHealth.FAILED,
        alert_hold=30, hold=60, recover=10 * MINUTE, action=Mode.DRAIN,
        title="An expected port is not ACTIVE and its link is not up",
        means="The kernel's `state` is not ACTIVE and the link is not up. Nothing passes through this port; a job that "
        "uses it hangs or ends with an error.",
        source="30 s: NVIDIA health validation; 60 s: after a switch port has bounced; 10 min: the time for which gpud "
        "distrusts a port that came back",
        causes="cable or transceiver unplugged or broken; switch port or switch down; port disabled by somebody",
        todo="`ibstat DEVICE` and `mlxlink -d DEVICE -m` show the link and its transceiver; look at the switch port at "
        "the other end of the cable; reseat the cable, then swap it",
        clears="ACTIVE for the recover time without a break",
    ),
    Rule(
        id="port-init", check=checks.port_init, health=PortHealth.FAILED,
        alert_hold=60, hold=300, recover=5 * MINUTE, action=Mode.ALERT, fleet_action=Mode.DRAIN,
        title="The link is up but the port waits in INIT or ARMED for a subnet manager",
        means="`phys_state` is LinkUp but `state` stays INIT or ARMED: the cable is well, and nobody configures the "
        "port. Jobs cannot use it.",
        source="INIT is the subnet manager's matter and mostly fleet-wide (Meta GCM warns), so it alerts",
        causes="no subnet manager runs; it cannot reach this port; a partition or key keeps the port out",
        todo="run `sminfo` on a node whose ports are ACTIVE; look at the subnet manager's log for this port's GUID",
        clears="ACTIVE for the recover time",
    ),
    Rule(
        id="rate-low", check=checks.rate_low, health=PortHealth.DEGRADED,
        alert_hold=30, hold=60, recover=5 * MINUTE, action=Mode.DRAIN,
        title="An ACTIVE port runs below its expected rate",
        means="The port carries data, but slower than it should. A collective runs at the speed of its slowest port, "
        "so one slow port slows a whole job. What the kernel prints for a speed that it cannot name is no rate: the "
        "port shows as unknown, which alerts and does not drain.",
        source="a lost lane halves a collective and does not heal by itself (Meta GCM, NHC: exact rate or drain)",
        causes="a lane lost to a dirty or broken connector; a slower cable; a switch port set to a lower speed",
        todo="compare what `mlxlink -d DEVICE` says at both ends; clean and reseat the cable, then swap it; if the "
        "slower rate is wanted, write it into [[port]]",
        clears="the expected rate for the recover time",
    ),
    Rule(
        id="device-missing", check=checks.device_missing, health=PortHealth.FAILED, scope="device", once_a_day=True,
        alert_hold=30, hold=120, recover=10 * MINUTE, action=Mode.DRAIN,
        title="An expected device is not in class/infiniband, and its PCI function is gone or has no driver",
        means="The node has lost a whole adapter: jobs that want all of them fail to start or run on fewer rails.",
        source="counted on complete listings only (NVSentinel #1488 shows what one missed listing costs)",
        causes="the card fell off the bus; its driver did not bind; the slot lost power",
        todo="`lspci -d 15b3:` tells whether the card is there, `dmesg | grep mlx5` why its driver is not; power-cycle "
        "the node; reseat the card",
        clears="its port ACTIVE for the recover time; a second time within 24 hours only by `ibmon clear`",
    ),
    Rule(
        id="all-devices-missing", check=checks.of_node, health=PortHealth.FAILED, scope="node",
        alert_hold=10, hold=10 * MINUTE, recover=MINUTE, action=Mode.DRAIN,
        title="None of the expected devices is there",
        means="No expected adapter is listed in `class/infiniband`. That is one cause on this node and not many broken "
        "cards.",
        source="one cause (a driver that was unloaded, a container's view), so one finding for all; the alert comes "
        "after three complete listings",
        causes="the driver is not loaded or is being updated; another /sys than the host's",
        todo="`lsmod | grep mlx5_ib` and `systemctl status openibd` tell whether the driver is loaded; in a container, "
        "look whether /sys is the host's",
        clears="a device is there: after three listings, once critical after the recover time",
    ),
    Rule(
        id="link-flap", check=counts.link_flap, health=PortHealth.DEGRADED, warning_health=PortHealth.WARNING,
        alert_hold=0, hold=0, recover=DAY, action=Mode.DRAIN, counts=True,
        unit="episodes", window=DAY, warning=2, critical=3,
        title="A link that goes down and comes back again and again",
        means="The link bounced several times in a day, as `link_downed`, the network interface's carrier counter or "
        "`state` show. Each bounce breaks the connections of running jobs.",
        source="2 in 24 h: NVIDIA bring-up guide; 3: gpud (3 in 12 h); by chance alone three on one link are "
        "practically never seen (0.074 flaps per link and year, DeepSeek)",
        causes="a bad or dirty cable or transceiver; a marginal switch port",
        todo="clean and reseat the cable, then swap it; if it goes on, swap the transceiver or move to another switch "
        "port; `ibmon clear` after the repair",
        clears="24 hours without a flap",
    ),
    Rule(
        id="flap-storm", check=counts.flap_storm, health=PortHealth.DEGRADED, warning_health=PortHealth.WARNING,
        alert_hold=0, hold=0, recover=DAY, action=Mode.DRAIN, counts=True,
        unit="times", window=15 * MINUTE, warning=5, critical=10,
        title="A link that bounces within minutes",
        means="The link goes up and down within minutes. No job gets through on it.",
        source="a link that does this is dead for RDMA (OPA quarantines at 25 in 15 min)",
        causes="a bad cable or transceiver; a switch port that negotiates for ever",
        todo="disable the port at the switch, so that it stops bouncing; swap cable and transceiver; `ibmon clear` "
        "after the repair",
        clears="24 hours without a change",
    ),
    Rule(
        id="long-outage", check=counts.long_outage, health=PortHealth.DEGRADED, warning_health=PortHealth.WARNING,
        alert_hold=0, hold=0, recover=DAY, action=Mode.ALERT, counts=True,
        unit="times", window=DAY, warning=2, critical=3,
        title="The port was down for half a minute or longer and came back, more than once",
        means="The port was away so long that jobs did not survive it, more than once a day, and came back by itself.",
        source="NVIDIA health validation calls an outage of 30 s a failed link; the first one is port-down's matter",
        causes="a switch that rebooted; somebody who pulled a cable; a failing transceiver",
        todo="ask who worked on the fabric; if nobody did, look at the switch's log for this port; swap the cable",
        clears="24 hours without another one",
    ),
    Rule(
        id="symbol-errors", check=counts.symbol_errors, health=PortHealth.DEGRADED, warning_health=PortHealth.WARNING,
        alert_hold=0, hold=0, recover=125 * MINUTE, action=Mode.ALERT, counts=True,
        unit="ber", window=None, warning=5e-15, critical=1e-14,
        title="Bit errors after correction above what the link is specified for",
        means="`symbol_error` (on Ethernet `rx_pcs_symbol_err_phy`) rises faster than a good link's. What the error "
        "correction could not repair costs retransmissions: the link still works, and gets worse.",
        source="NVIDIA bring-up guide for NDR: 5e-15 warning, 1e-14 error, over the time in which 1e-15 gives three "
        "errors (125 min at 400 Gb/s); it drains only where the site says so, once it has seen its own fleet's numbers",
        causes="a dirty or failing cable, transceiver or connector",
        todo="`mlxlink -d DEVICE -c` shows the error ratios that the card measures; clean and reseat the cable at both "
        "ends, then swap it",
        clears="fewer than three symbol errors in the time in which a link at its specified ratio makes three (125 min "
        "at 400 Gb/s); where the limits are set per hour, none for the recover time",
    ),
    Rule(
        id="gross-errors", check=counts.gross_errors, health=PortHealth.DEGRADED, warning_health=PortHealth.WARNING,
        alert_hold=0, hold=0, recover=125 * MINUTE, action=Mode.ALERT, counts=True,
        unit="ber", window=10 * MINUTE, warning=None, critical=1e-12,
        title="So many bit errors that packets are lost",
        means="`symbol_error` (on Ethernet `rx_pcs_symbol_err_phy`) rises so fast that packets are lost all the time. "
        "Jobs on this link are slow now.",
        source="1e-12 (ibdiagnet, the old specification) is above the least packet loss that CorrOpt saw harm from",
        causes="a dirty, damaged or failing cable, transceiver or connector",
        todo="take the node out of multi-node jobs; clean and reseat the cable at both ends; swap it",
        clears="fewer than three symbol errors in the time in which a link at its specified ratio makes three (125 min "
        "at 400 Gb/s); where the limits are set per hour, none for the recover time",
    ),
    Rule(
        id="link-recovery", check=counts.on_infiniband(counts.link_recovery), health=PortHealth.WARNING,
        alert_hold=0, hold=0, recover=2 * HOUR, action=Mode.ALERT, counts=True,
        unit="per_hour", window=HOUR, warning=3, critical=3,
        title="The link retrained after errors",
        means="`link_error_recovery` rises: the link stopped for some milliseconds, trained anew and went on, without "
        "going down.",
        source="meaningful together with symbol errors (Sun switch guide); critical only then",
        causes="a marginal link",
        todo="watch symbol_error beside it; if both rise, clean and reseat the cable, then swap it",
        clears=_WAITS,
    ),
    Rule(
        id="receive-errors", check=counts.receive_errors, health=PortHealth.WARNING,
        alert_hold=0, hold=0, recover=HOUR, action=Mode.ALERT, counts=True,
        unit="per_hour", window=HOUR, warning=10, critical=100,
        title="Packets arrive broken",
        means="`port_rcv_errors` rises: packets reach this port damaged and are thrown away.",
        source="10: ibcheckerrs, 100: Azure; beside remote physical errors the fault is on another hop",
        causes="a bad link on this hop, or, with remote physical errors, on another one",
        todo="look for the first hop that counts symbol errors",
        clears="an hour without one",
    ),
    Rule(
        id="link-integrity", check=counts.on_infiniband(counts.each(
            ("counters/local_link_integrity_errors", "counters/excessive_buffer_overrun_errors")
        )),
        health=PortHealth.WARNING, alert_hold=0, hold=0, recover=DAY, action=Mode.ALERT, counts=True,
        unit="per_hour", window=HOUR, warning=1, critical=5,
        title="The receiver gave up on link quality or ran over",
        means="`local_link_integrity_errors` or `excessive_buffer_overrun_errors` rises: errors came in a row, or "
        "packets came where there was no room for them.",
        source="vendors disagree (fatal to one, ignored by another) and the fields have four bits, so it alerts",
        causes="a bad link; a peer that breaks flow control",
        todo="clean and reseat the cable; if only overruns rise, look at the peer's flow control",
        clears="24 hours without one",
    ),
    Rule(
        id="transmit-discards", check=counts.one("counters/port_xmit_discards"), health=PortHealth.WARNING,
        alert_hold=0, hold=0, recover=15 * MINUTE, action=Mode.OBSERVE, counts=True,
        unit="per_hour", window=5 * MINUTE, warning=100 * HOUR, critical=None,
        title="Outgoing packets are dropped",
        means="`port_xmit_discards` rises: packets waited for too long to leave and were thrown away. The cause lies "
        "in the fabric in most cases.",
        source="100 per second: NVSentinel; it tells of congestion, so it is shown only",
        causes="congestion; a port that was down while packets waited",
        todo="look at the fabric's congestion, not at this node",
        clears=_WAITS,
    ),
    Rule(
        id="roce-crc", check=counts.each(
            ("phy/rx_crc_errors_phy", "phy/rx_symbol_err_phy", "hw/rx_icrc_encapsulated")
        ),
        health=PortHealth.WARNING, alert_hold=0, hold=0, recover=HOUR, action=Mode.ALERT, counts=True,
        unit="per_hour", window=HOUR, warning=10, critical=100,
        title="Broken frames arrive on an Ethernet port",
        means="`rx_crc_errors_phy`, `rx_symbol_err_phy` or `rx_icrc_encapsulated` rises: frames were damaged on their "
        "way to this port.",
        source="real corruption at this receiver (NVIDIA's counter document)",
        causes="a bad cable or transceiver; a switch with broken memory where the ICRC fails behind a good FCS",
        todo="clean and reseat the cable, then swap it; with ICRC errors only, look at the switches on the way",
        clears="an hour without one",
    ),
    Rule(
        id="pause-storm", check=counts.each(("phy/tx_pause_storm_error_events", "phy/tx_pause_storm_warning_events")),
        health=PortHealth.WARNING, alert_hold=0, hold=0, recover=HOUR, action=Mode.ALERT, counts=True,
        unit="per_hour", window=HOUR, warning=1, critical=None,
        title="The port sent pause frames without end and was cut off",
        means="`tx_pause_storm_*_events` rises: this node held its switch port up for so long that the adapter's "
        "watchdog stepped in. While it lasts the whole fabric may stand still.",
        source="the adapter's own watchdog (NVIDIA's counter document)",
        causes="a host that cannot take its traffic: PCIe, memory, a hung receiver",
        todo="look for a pcie-degraded finding and for errors of the host's memory; reboot the node",
        clears="an hour without one",
    ),
    Rule(
        id="gid-missing", check=checks.gid_missing, health=PortHealth.FAILED,
        alert_hold=60, hold=60, recover=60, action=Mode.ALERT,
        title="An ACTIVE RoCE port has no GID",
        means="The first entry of the port's GID table is all zero, so the port has no address on the fabric: "
        "connections over it cannot be made, although its link is up.",
        source="entry 0 is the default GID that the kernel makes of the interface's address "
        "(drivers/infiniband/core/roce_gid_mgmt.c); 60 s: an interface that comes up has it within one",
        causes="the network interface is gone, renamed or in another namespace; its address was taken away",
        todo="`ip address show dev NETDEV` shows whether the interface has addresses; `show_gids` lists the table; "
        "take the interface down and up",
        clears="the GID is there for the recover time",
    ),
    Rule(
        id="retransmits", check=counts.each(
            (
                "hw/local_ack_timeout_err", "hw/packet_seq_err", "hw/out_of_sequence", "hw/rnr_nak_retry_err",
                "hw/roce_slow_restart",
            ),
            {"hw/local_ack_timeout_err": 0.1},
        ),
        health=PortHealth.WARNING, alert_hold=0, hold=0, recover=15 * MINUTE, action=Mode.OBSERVE, counts=True,
        unit="per_hour", window=5 * MINUTE, warning=10 * HOUR, critical=None,
        title="Transport retransmissions",
        means="Counters of the transport in `hw_counters` rise: packets are sent again because answers or packets were "
        "lost somewhere between two nodes.",
        source="1 (acknowledge timeouts) and 10 per second: NVSentinel; a peer that died raises them too",
        causes="packets lost anywhere on the path; a peer that crashed; a receiver that is too slow",
        todo="compare with the peers: one node that all others complain of is the one to look at",
        clears=_WAITS,
    ),
    Rule(
        id="qp-broken", check=counts.each(("hw/req_transport_retries_exceeded", "hw/req_rnr_retries_exceeded")),
        health=PortHealth.WARNING, alert_hold=0, hold=0, recover=HOUR, action=Mode.OBSERVE, counts=True,
        unit="per_hour", window=HOUR, warning=1, critical=None,
        title="Connections were given up after all retries",
        means="`req_transport_retries_exceeded` or `req_rnr_retries_exceeded` rises: a connection ended with an error "
        "after its last retry. A job has failed, or is about to.",
        source="NVIDIA's counter document: fatal for the connection, whoever's fault it was",
        causes="a path or a peer that is gone",
        todo="compare with the peers: one node that all others complain of is the one to look at",
        clears="an hour without one",
    ),
    Rule(
        id="pcie-degraded", check=checks.pcie_degraded, health=PortHealth.DEGRADED, scope="device",
        alert_hold=300, hold=300, recover=5 * MINUTE, action=Mode.ALERT,
        title="The adapter's PCIe link runs below what card and slot can do",
        means="The adapter's link to the host is narrower or slower than both ends allow, so the port cannot carry its "
        "rate to the memory.",
        source="compared with both ends, never with a table of cards (NHC #90, sichek #122)",
        causes="a card not fully seated; a riser or retimer; a slot that trained down",
        todo="`lspci -vv -s ADDRESS` shows LnkCap and LnkSta; power-cycle the node; reseat the card and its riser",
        clears="full speed and width for the recover time",
    ),
    Rule(
        id="driver-fault", check=checks.driver_fault, health=PortHealth.FAILED, warning_health=PortHealth.WARNING,
        scope="device",
        alert_hold=60, hold=60, recover=HOUR, action=Mode.DRAIN,
        title="The driver or the kernel log says that the device is broken",
        means="Reads of the device answer ENOLINK, or the kernel log holds the driver's own words for a broken device. "
        "The adapter does no work until it is reset.",
        source="ENOLINK is mlx5's answer for a device in internal error (mlx5/core/cmd.c); the log patterns are those "
        "of the driver's own health messages",
        causes="firmware that died; an unrecoverable hardware error",
        todo="`dmesg | grep ADDRESS` shows the driver's words; reset the card or reboot; open a case with the vendor "
        "if it returns",
        clears="answers again and no new line for the recover time",
    ),
    Rule(
        id="module-temperature", check=checks.module_temperature, health=PortHealth.WARNING, scope="device",
        alert_hold=300, hold=300, recover=15 * MINUTE, action=Mode.ALERT,
        unit="celsius", warning=70, critical=80,
        title="A cable or transceiver module is too hot",
        means="The module in one of the device's cages has been hotter than the limit for the hold. Optics that run "
        "hot make bit errors first and then switch themselves off.",
        source="70 degrees Celsius: NVIDIA bring-up guide and UFM; 80: UFM's critical limit; 300 s: the time over "
        "which UFM looks; 5 degrees: what it wants a module to cool by",
        causes="a fan that failed or runs slow; blocked air; a module that draws more power than the cage can cool",
        todo="`mlxlink -d DEVICE -m` shows the module's own limits; look at the fans and at the neighbouring ports; if "
        "one module alone is hot, swap it",
        clears="5 degrees cooler than the limit for the recover time",
    ),
    Rule(
        id="pkey-missing", check=checks.pkey_missing, health=PortHealth.DEGRADED, enabled=False,
        alert_hold=60, hold=60, recover=60, action=Mode.ALERT,
        title="An ACTIVE InfiniBand port is no full member of a partition",
        means="The first entry of the port's partition table is empty or says limited membership of the default "
        "partition. Limited members cannot talk to each other. It is off by default: some sites want it so.",
        source="0x0000 and 0x7fff (InfiniBand Architecture Specification, partitioning); sites that use partitions "
        "turn it on",
        causes="the port's GUID is missing in the subnet manager's partitions.conf, or is there as a limited member",
        todo="`smpquery pkeys -D 0` shows the table; add the port's GUID to its partition and let the subnet manager "
        "read that anew",
        clears="a full membership is there for the recover time",
    ),
    Rule(
        id="chardev-missing", check=checks.chardev_missing, health=PortHealth.FAILED, scope="device",
        alert_hold=60, hold=60, recover=60, action=Mode.ALERT,
        title="A device has no verbs character device, so no job can open it",
        means="The device has no `uverbs` node although others of the node have theirs. Its port may look well; no "
        "program can open it.",
        source="only what a job opens is asked for; a missing issm is normal (NVSentinel #1663)",
        causes="ib_uverbs not loaded when the device came; a udev rule; a container's view",
        todo="`ls -l /dev/infiniband` shows what is there; reload ib_uverbs or reboot",
        clears="the character device is there for the recover time",
    ),
    Rule(
        id="repeat-offender", check=checks.of_node, health=PortHealth.WARNING, scope="node",
        alert_hold=0, hold=0, recover=30 * DAY, action=Mode.ALERT, counts=True,
        unit="times", window=30 * DAY, warning=2, critical=3,
        title="ibmon has drained this node again and again: the next drain stays until a person clears it",
        means="Within 30 days this node went bad, got well and went bad again: what was repaired was not the cause. "
        "Given back by itself it would only break more jobs.",
        source="removing such nodes brought the failures of large jobs from 14 % to 4 % (Meta, lemon nodes)",
        causes="a fault that comes and goes with load or temperature; a repair that was none",
        todo="`ibmon events` shows what went bad each time; take the node out for a real repair; `ibmon clear` after "
        "it",
        clears="`ibmon clear`, or 30 days without a drain",
    ),
    Rule(
        id="counter-saturated", check=checks.counter_saturated, health=PortHealth.OK,
        alert_hold=0, hold=0, recover=60, action=Mode.OBSERVE,
        title="A counter stands at the maximum of its field: blind until somebody clears it",
        means="A narrow counter has reached its largest value and stays there. What it counts may go on unseen: its "
        "rules are unknown, not good.",
        source="the fields of the port counters have 4, 8, 16 or 32 bits and stick (drivers/infiniband/core/sysfs.c)",
        causes="years without a reset",
        todo="`perfquery -R` at a quiet time, if it should move again",
        clears="the counter is below its maximum",
    ),
    Rule(
        id="device-stalled", check=checks.device_stalled, health=PortHealth.UNKNOWN, scope="device",
        alert_hold=120, hold=600, recover=10 * MINUTE, action=Mode.DRAIN,
        title="A read of the device does not return",
        means="A read of this device has not returned. Its values are old; other devices are read as before.",
        source="a firmware command times out after 60 s (mlx5/core/cmd.c); ten minutes are not a command's time",
        causes="firmware that hangs; a PCIe link that lost the card",
        todo="`dmesg | grep ADDRESS` shows what the driver waits for; reset the card or reboot, as nothing else ends a "
        "hung read",
        clears="answers again for the recover time",
    ),
    Rule(
        id="monitor-blind", check=checks.monitor_blind, health=PortHealth.UNKNOWN,
        alert_hold=0, hold=0, recover=60, action=Mode.ALERT, polls=6,
        title="The state of a port cannot be read",
        means="`state` of a port, or the list of devices, gives errors again and again. ibmon does not know whether "
        "the port is good.",
        source="not being able to see is a state of its own: it alerts and never drains",
        causes="a driver that refuses; missing permissions; another /sys than the host's in a container",
        todo="`journalctl -u ibmon` names file and error; read that file as the daemon's user",
        clears="state is read again for the recover time",
    ),
)  # fmt: skip

RULE_BY_ID = {rule.id: rule for rule in RULES}

JUDGED_COUNTERS: Final = frozenset(
    {
        "counters/symbol_error", "counters/link_error_recovery", "counters/port_rcv_errors",
        "counters/port_rcv_remote_physical_errors", "counters/local_link_integrity_errors",
        "counters/excessive_buffer_overrun_errors", "counters/port_xmit_discards", "counters/link_downed",
        "phy/rx_pcs_symbol_err_phy", "phy/rx_crc_errors_phy", "phy/rx_symbol_err_phy",
        "phy/tx_pause_storm_error_events", "phy/tx_pause_storm_warning_events", "phy/link_down_events_phy",
        "hw/rx_icrc_encapsulated", "hw/local_ack_timeout_err", "hw/packet_seq_err", "hw/out_of_sequence",
        "hw/rnr_nak_retry_err", "hw/roce_slow_restart", "hw/req_transport_retries_exceeded",
        "hw/req_rnr_retries_exceeded", "net/carrier_down_count",
    }
)  # fmt: skip
"""Counters whose rises are remembered, by level and file."""
