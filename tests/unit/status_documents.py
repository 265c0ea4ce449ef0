"""Status documents as `status` and `top` get them, every part of which a test may replace."""

from __future__ import annotations

GBPS = 125_000_000


def port(number=0, **changes):
    return {
        "device": f"mlx5_{number}", "port": 1, "role": "compute", "rail": number, "health": "ok", "present": True,
        "expected": True, "link_layer": "InfiniBand", "netdev": f"ib{number}", "state": "ACTIVE",
        "physical_state": "LinkUp", "rate": 400 * GBPS, "expected_rate": 400 * GBPS, "speed": "NDR", "width": 4,
        "flaps": 0, "moved": [], "hold": {}, **changes,
    }  # fmt: skip


def device(number=0, **changes):
    pci = {
        "address": "0000:1a:00.0",
        "speed": 32_000_000_000,
        "width": 16,
        "expected_speed": 32_000_000_000,
        "expected_width": 16,
    }
    return {"device": f"mlx5_{number}", "stalled": False, "pci": {**pci, **changes.pop("pci", {})}, **changes}


def drain(**changes):
    quiet = {"wanted": False, "active": False, "owned": None, "blocked": None, "reason": ""}
    return {**quiet, "overridden": False, "orphaned": False, **changes}


def document(**changes):
    return {
        "v": 1, "node": "gpu-17", "wall": 0, "mode": "drain", "fitness": "fit", "why": "", "up": True,
        "listing_errno": None, "actions_enabled": True, "config": {"valid": True, "hash": "x"},
        "devices": [device()], "ports": [port()], "findings": [], "drain": drain(), **changes,
    }  # fmt: skip


FINDING = {
    "rule": "port-down",
    "device": "mlx5_0",
    "port": 1,
    "severity": "critical",
    "text": "DOWN/Polling 62s>60s",
    "recovering": False,
}
