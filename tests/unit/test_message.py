"""What a message says: by the published schema, and in words for chat."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from webhook_bodies import AT, CLEARED, FITNESS, finding

from ibmon.alert import message
from ibmon.announce import Announcer
from ibmon.messages import Send
from ibmon.model import Mode, NodeFitness, Now, Severity

DOCS = Path(__file__).parents[2] / "docs"


def decoded(topic, body):
    raw = message.encode(topic, "n1", body, AT)
    typed = msgspec.json.decode(raw, type=message.WebhookMessage)
    return json.loads(raw), typed


def test_a_change_of_fitness_in_its_published_form():
    raw, typed = decoded("fitness", FITNESS)
    assert isinstance(typed, message.FitnessMessage)
    assert raw == {
        "type": "ibmon.fitness",
        "timestamp": "2030-01-01T10:00:00.250Z",
        "data": {
            "node": "n1",
            "fitness": "unfit",
            "previous": "watch",
            "why": "port-down mlx5_3/1",
            "findings": [
                {
                    "rule": "port-down",
                    "port": "mlx5_3/1",
                    "severity": "critical",
                    "onset": "2030-01-01T09:58:58.250Z",
                    "observed": "DOWN/Polling",
                    "limit": 60.0,
                    "text": "DOWN/Polling 62s>60s",
                    "drains": True,
                }
            ],
            "drain": None,
        },
    }


def test_a_drain_is_told_where_it_is_known():
    drain = {"wanted": True, "active": False, "blocked": "limit_nodes"}
    _, typed = decoded("fitness", {**FITNESS, "drain": drain})
    assert typed.data.drain == message.DrainBody(wanted=True, active=False, blocked="limit_nodes")


def test_a_finding_that_opened_and_one_that_cleared():
    raw, _ = decoded("finding", {"state": "open", "finding": finding(port=0, counter="x", recovering=True)})
    assert raw["data"]["finding"]["port"] == "mlx5_3"
    assert raw["data"]["finding"]["recovering"] is True
    raw, typed = decoded("finding", CLEARED)
    assert raw["data"] == {"node": "n1", "state": "cleared", "finding": {"rule": "port-down", "port": "mlx5_3/1"}}
    assert isinstance(typed, message.FindingMessage)


@pytest.mark.parametrize(
    ("topic", "body"),
    [
        ("fitness", {**FITNESS, "fitness": "sick"}),
        ("finding", {**CLEARED, "state": "gone"}),
        ("other", CLEARED),
    ],
)
def test_what_the_schema_does_not_know_does_not_leave(topic, body):
    with pytest.raises(msgspec.ValidationError):
        message.encode(topic, "n1", body, AT)


def test_everything_that_the_announcer_sends_has_the_published_form():
    teller = Announcer("n1", NodeFitness.FIT, ())
    sent = []
    steps = [
        ((finding(severity=Severity.WARNING, drains=False),), NodeFitness.WATCH),
        ((finding(), finding(rule="counter-saturated", device="", port=0)), NodeFitness.UNFIT),
        ((finding(recovering=True),), NodeFitness.UNFIT),
        ((), NodeFitness.FIT),
        ((), NodeFitness.UNKNOWN),
    ]
    for i, (findings, fitness) in enumerate(steps):
        effects = teller.tell(findings, fitness, "why", Mode.ALERT, Now(float(i), AT + i), settled=True)
        sent += [effect for effect in effects if isinstance(effect, Send)]
    types = [decoded(effect.topic, effect.body)[0]["type"] for effect in sent]
    assert types.count("ibmon.fitness") == 4
    assert types.count("ibmon.finding") >= 5


def test_the_published_schema_is_that_of_the_types():
    assert json.loads((DOCS / "webhook.schema.json").read_text()) == message.schema()
