"""What is taken from the last rendering must be what a rendering from nothing gives, whatever has changed between."""

from __future__ import annotations

import gzip

import msgspec
import pytest
from exporter_snapshots import next_of, snapshot, typical
from hypothesis import given, settings
from hypothesis import strategies as st

from ibmon.exporter.render import Renderer
from ibmon.exporter.status import StatusText, status_document
from ibmon.exporter.text import Format
from ibmon.health.windows import Moment
from ibmon.maintenance import Window
from ibmon.model import Finding, Intent, Level, Mode, NodeFitness, Now, Ownership, PortHealth, Severity
from ibmon.snapshot import DrainView

BUSY = (1, Level.COUNTERS, "port_rcv_data")
STILL = (1, Level.COUNTERS, "symbol_error")


def with_device(shot, **facts):
    """The snapshot with another view of its last device."""
    *others, view = shot.devices
    return msgspec.structs.replace(next_of(shot), devices=(*others, msgspec.structs.replace(view, **facts)))


def with_value(shot, column, value):
    """The snapshot with another value in one column of its last device."""
    sample = shot.devices[-1].sample
    at = sample.layout.index[column]
    return with_device(
        shot,
        sample=msgspec.structs.replace(sample, values=(*sample.values[:at], value, *sample.values[at + 1 :])),
    )


def with_port(shot, **facts):
    """The snapshot with another view of its last port."""
    *others, view = shot.ports
    return msgspec.structs.replace(next_of(shot), ports=(*others, msgspec.structs.replace(view, **facts)))


def with_node(shot, **facts):
    """The snapshot with other facts of the node."""
    return msgspec.structs.replace(next_of(shot), **facts)


FINDING = Finding(
    rule="port-down", device="mlx5_0", port=1, counter="", severity=Severity.CRITICAL, onset=1.0, observed=1, limit=4,
    text="port-down mlx5_0/1 DOWN",
)  # fmt: skip
WINDOW = Window((), Moment(900.0, 1_699_999_900.0, "0b1d"), 7200.0, "a cable is changed", "ann")
OWNED = Ownership(id="7f3a9c", reason="ibmon: port-down", asked=5.0, held=True)

CHANGES = {
    "nothing": next_of,
    "a busy counter": lambda s: with_value(s, BUSY, 8),
    "a busy counter that cannot be read": lambda s: with_value(s, BUSY, None),
    "a still counter": lambda s: with_value(s, STILL, 4),
    "a still counter that cannot be read": lambda s: with_value(s, STILL, None),
    "the state": lambda s: with_value(s, (1, Level.ATTR, "state"), 1),
    "the PCIe link": lambda s: with_value(s, (0, Level.PCI, "current_link_width"), 4),
    "a device hangs": lambda s: with_device(s, stalled=True),
    "a read error": lambda s: with_device(s, read_errors={22: 5, 19: 1}),
    "a reset": lambda s: with_device(s, resets={s.devices[-1].sample.layout.index[STILL]: 9}),
    "a full counter": lambda s: with_device(s, saturated={s.devices[-1].sample.layout.index[STILL]: True}),
    "firmware": lambda s: with_device(
        s, device=msgspec.structs.replace(s.devices[-1].device, firmware_version="28.43.1014")
    ),
    "a device leaves": lambda s: with_node(s, devices=s.devices[:1]),
    "all devices leave": lambda s: with_node(s, devices=()),
    "a port's health": lambda s: with_port(s, health=PortHealth.FAILED),
    "a hold": lambda s: with_port(s, hold={"port-down": 12.5}),
    "flaps": lambda s: with_port(s, flaps=7),
    "fitness": lambda s: with_node(s, fitness=NodeFitness.UNFIT),
    "mode": lambda s: with_node(s, mode=Mode.DRAIN),
    "a finding": lambda s: with_node(s, findings=(FINDING,)),
    "a drain": lambda s: with_node(s, drain=DrainView(Intent(drain=True), owned=OWNED, would=3)),
    "configuration": lambda s: with_node(s, config_hash="beef", config_valid=False),
    "the listing": lambda s: with_node(s, up=False, listing_errno=2),
    "quarantine": lambda s: with_node(s, quarantined=("mlx5_9",)),
    "rules": lambda s: with_node(s, rules_available={"gross-errors": False}),
    "a window": lambda s: with_node(s, maintenance=(WINDOW,)),
}


def exposition(renderer, shot, fmt, *, packed=False):
    """The text as it is served."""
    body = renderer.render(shot, fmt, monotonic=1000.0, self_metrics=b"# self\n", gzip=packed)
    return (gzip.decompress(body) if packed else body).decode()


@pytest.mark.parametrize("fmt", Format)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_after_a_change_the_text_is_that_of_a_renderer_that_knew_nothing(change, fmt):
    renderer, before = Renderer(), typical()
    exposition(renderer, before, fmt)
    after = change(before)
    assert exposition(renderer, after, fmt) == exposition(Renderer(), after, fmt)
    assert exposition(renderer, before, fmt, packed=True) == exposition(Renderer(), before, fmt)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), st.booleans()), max_size=12))
def test_any_run_of_changes_is_rendered_as_from_nothing(run):
    renderer, shot = Renderer(), typical()
    for name, packed in run:
        whole = [view.device.name for view in shot.devices] == ["mlx4_0", "mlx5_0"]
        shot = CHANGES[name](shot) if whole else typical()
        for fmt in Format:
            assert exposition(renderer, shot, fmt, packed=packed) == exposition(Renderer(), shot, fmt)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(CHANGES)), max_size=12))
def test_after_any_run_of_changes_the_status_text_is_the_status_document(run):
    text, shot = StatusText(), typical()
    for number, name in enumerate(("nothing", *run)):
        whole = [view.device.name for view in shot.devices] == ["mlx4_0", "mlx5_0"]
        shot = msgspec.structs.replace(CHANGES[name](shot) if whole else typical(), at=Now(1000.0 + number, 2000.0))
        assert msgspec.json.decode(text.encode(shot)) == msgspec.json.decode(msgspec.json.encode(status_document(shot)))


def test_status_text_encodes_a_port_again_only_when_it_has_changed(monkeypatch):
    from ibmon.exporter import status

    text, shot, made = StatusText(), typical(), []
    port = status._port
    monkeypatch.setattr(status, "_port", lambda view: made.append(str(view.id)) or port(view))
    text.encode(shot)
    everything = sorted(made)
    assert everything == sorted(str(view.id) for view in shot.ports)
    made.clear()
    text.encode(with_value(shot, BUSY, 9))
    assert made == []
    text.encode(with_port(shot, flaps=99))
    assert made == [str(shot.ports[-1].id)]


def test_what_stands_still_is_not_written_again_when_only_traffic_has_moved(monkeypatch):
    renderer, shot, walks = Renderer(), typical(), []
    walk = renderer._samples.lines
    monkeypatch.setattr(renderer._samples, "lines", lambda *a: walks.append(1) or walk(*a))
    later = with_node(with_value(shot, BUSY, 123_456), at=Now(1005.0, 1_700_000_005.0))
    texts = [exposition(renderer, s, Format.TEXT, packed=True) for s in (shot, later)]
    assert len(walks) == 1
    assert "port_rcv_data_bytes_total" in texts[1]
    assert "} 493824\n" in texts[1]  # four bytes each
    exposition(renderer, snapshot(), Format.TEXT)
    assert len(walks) == 2
