"""What the tests of webhooks send: bodies of messages, and secrets."""

from __future__ import annotations

import base64

from ibmon.model import Finding, Severity

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
OTHER = "whsec_" + base64.b64encode(b"another secret of 32 bytes......").decode()
AT = 1893492000.25  # 2030-01-01T10:00:00.250Z


def finding(**more):
    values = {
        "rule": "port-down",
        "device": "mlx5_3",
        "port": 1,
        "counter": "",
        "severity": Severity.CRITICAL,
        "onset": AT - 62,
        "observed": "DOWN/Polling",
        "limit": 60.0,
        "text": "DOWN/Polling 62s>60s",
        "drains": True,
    }
    return Finding(**(values | more))


FITNESS = {"fitness": "unfit", "previous": "watch", "why": "port-down mlx5_3/1", "since": AT, "findings": [finding()]}
CLEARED = {"state": "cleared", "finding": {"rule": "port-down", "device": "mlx5_3", "port": 1, "counter": ""}}
