"""How single configuration values are written: durations, shares, patterns, addresses; both ways.

Pure. Every function raises ValueError with a text that says what was found and how it should be written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ibmon.configkeys import Key, Kind
from ibmon.nearest import nearest

LONGEST = 10 * 365 * 86400.0  # no duration is longer: ten years, in seconds
LARGEST = 2**53  # no number is larger: up to here a float is exact
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_GUID = re.compile(r"guid:[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3}(?:/\d+)?")
_PCI = re.compile(r"pci:[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7](?:/\d+)?")
_CLASS = re.compile(r"\[!?((?:\w(?:-\w)?|[.-])+)\]")
_PORT = re.compile(r"(?:[^/\s\[\]]|\[!?(?:\w(?:-\w)?|[.-])+\])+/(?:\d|[*?]|\[!?(?:\d(?:-\d)?)+\])+")
MOST_PORTS = 1024  # what one pattern may stand for: far more ports than a node has


def show(value: Any) -> str:
    """A value as TOML would write it, for messages."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + _escape(value) + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(show(v) for v in value) + "]"
    if isinstance(value, dict):
        return "a table"
    return str(value)


def _escape(text: str) -> str:
    out = text.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(
        c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}" for c in out
    )


def duration(value: Any) -> float:
    """Seconds of ``"5s"``, ``"10m"``, ``"1h30m"``, ``"500ms"``."""
    if _number(value) and _DURATION.fullmatch(f"{value:g}s"):
        raise ValueError(f'{show(value)} has no unit; write "{value:g}s" if seconds are meant')
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise ValueError(f'{show(value)} is no duration; write it like "5s", "10m", "1h30m" or "500ms"')
    # Milliseconds by division: only that gives the float nearest to what was written.
    parts = _PART.findall(value)
    seconds = math.fsum(float(n) / 1000 if unit == "ms" else float(n) * _UNITS[unit] for n, unit in parts)
    if seconds > LONGEST:
        raise ValueError(f"{show(value)} is more than ten years")
    return seconds


def duration_text(seconds: float) -> str:
    """The shortest exact way to write a duration: ``1h30m``, ``500ms``."""
    if not float(seconds).is_integer():
        milliseconds = round(seconds * 1000)
        return f"{milliseconds}ms" if milliseconds / 1000 == seconds else f"{seconds:f}s"
    left, parts = int(seconds), []
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def share(value: Any) -> float:
    """0..1 of ``"2%"`` or ``0.02``."""
    if isinstance(value, str) and re.fullmatch(r"\d+(?:\.\d+)?\s*%", value):
        found = float(value.rstrip("% ")) / 100
    elif _number(value) and 0 <= value <= 1:
        found = float(value)
    else:
        raise ValueError(f'{show(value)} is no share; write it like "2%" or 0.02')
    if found > 1:
        raise ValueError(f"{show(value)} is more than everything; a share ends at 100%")
    return found


def share_text(value: float) -> str:
    """The share in per cent where that is exact, such as ``2%``; else the number."""
    text = f"{value * 100:.10g}"
    return f"{text}%" if "e" not in text and float(text) / 100 == value else repr(value)


def port_match(value: Any) -> str:
    """A port of the inventory: ``device/port`` with shell patterns, ``guid:...`` or ``pci:...``."""
    text = _text(value)
    if text.startswith("guid:") and not _GUID.fullmatch(text):
        raise ValueError(f'{show(value)} is no node GUID; write it as the kernel does, "guid:a088:c203:0012:3456"')
    if text.startswith("pci:") and not _PCI.fullmatch(text):
        raise ValueError(f'{show(value)} is no PCI address; write it whole, "pci:0000:1a:00.0"')
    return text if text.startswith(("guid:", "pci:")) else ports(text)


def ports(value: Any) -> str:
    """A pattern on ``device/port``."""
    text = _text(value)
    if text.startswith(("guid:", "pci:")):
        raise ValueError(f'{show(value)}: only [[port]] knows GUIDs and PCI addresses; write "mlx5_3/1"')
    if not _PORT.fullmatch(text):
        raise ValueError(f'{show(value)} names no port; write device/port, as in "mlx5_3/1" or "mlx5_[0-7]/1"')
    meant = 1
    for inside in _CLASS.findall(text):
        if any(low > high for low, high in re.findall(r"(\w)-(\w)", inside)):
            raise ValueError(f"{show(value)}: [{inside}] runs backwards and stands for nothing")
        meant *= sum(ord(high) - ord(low) + 1 for low, high in re.findall(r"(\w)-(\w)", inside)) or len(inside)
    if meant > MOST_PORTS:
        raise ValueError(f"{show(value)} stands for more than {MOST_PORTS} ports; write a narrower pattern")
    return text


def url(value: Any) -> str:
    """An http or https URL with a host and without credentials, which belong in a file."""
    text = _text(value)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{show(value)} is no URL: {error}") from error
    if parts.scheme not in {"http", "https"} or not host or re.search(r"\s", text):
        raise ValueError(f"{show(value)} is no URL of a web server; write https://HOST/PATH")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL holds a user or a password; this file is no place for them")
    return text


def address(value: Any) -> str:
    """A URL as `url` takes it, to which a path can be added: without a query."""
    text = url(value)
    if {"?", "#"} & set(text):
        raise ValueError(f"{show(value)} is more than an address; leave out what begins with ? or #")
    return text


def address_if_any(value: Any) -> str:
    """Nothing, or an address."""
    return address(value) if _text(value) else ""


def server(value: Any) -> str:
    """Nothing, an address, or ``unix:`` with the absolute path of a socket."""
    text = _text(value)
    if text.startswith("unix:"):
        if not _file(text.removeprefix("unix:")):
            raise ValueError(f'{show(value)} names no socket; write it like "unix:/run/slurmrestd/slurmrestd.socket"')
        return text
    return address_if_any(text)


def listen(value: Any) -> str:
    """``:19315``, ``127.0.0.1:19315`` or ``[::1]:19315``."""
    text = _text(value)
    match = re.fullmatch(r"(\[[0-9a-fA-F:.%\w]+\]|[^\s:\[\]/]*):(\d+)", text)
    if not match or int(match[2]) > 65535:
        raise ValueError(
            f'{show(value)} is no address to listen at; write ":19315", "127.0.0.1:19315" or "[::1]:19315"'
        )
    return text


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is no text; put it in quotes")  # noqa: TRY004 - one kind of error for callers
    return value


def _filled(value: Any) -> str:
    if not (text := _text(value)):
        raise ValueError("an empty text names nothing; take it out")
    return text


def _name(value: Any) -> str:
    text = _text(value)
    if re.search(r"[\s\x00-\x1f]", text):
        raise ValueError(f"{show(value)} holds white space; a name has none")
    return text


def _file(value: Any) -> str:
    text = _text(value)
    if text and not text.startswith("/"):
        raise ValueError(f"{show(value)} is no absolute path; begin it with /")
    if "\0" in text:
        raise ValueError("a path cannot hold a NUL character")
    return text


def _brackets(pattern: str) -> None:
    if re.search(r"\[[^\]]*$", re.sub(r"\[!?\]?[^\]]*\]", "", pattern)):
        raise ValueError(f"{show(pattern)} has a [ without its ]")


def _device_pattern(value: Any) -> str:
    text = _text(value)
    if not text:
        raise ValueError('an empty pattern matches no device; write "*" for all')
    if "/" in text:
        raise ValueError(
            f'{show(value)} can match no device: a device name has no /; for a port use [[port]] with role = "ignored"'
        )
    _brackets(text)
    return text


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{show(value)} is neither true nor false; write true or false, without quotes")  # noqa: TRY004
    return value


def _plain_number(value: Any) -> float:
    if not _number(value):
        raise ValueError(f"{show(value)} is no number")
    return float(value)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or not _number(value):
        raise ValueError(f"{show(value)} is no whole number")
    return value


_READERS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.NAME: _name,
    Kind.FILE: _file,
    Kind.TEXTS: _filled,
    Kind.PATTERNS: _device_pattern,
    Kind.MATCH: port_match,
    Kind.PORTS: ports,
    Kind.URL: url,
    Kind.ADDRESS: address,
    Kind.ADDRESS_IF_ANY: address_if_any,
    Kind.SERVER: server,
    Kind.LISTEN: listen,
    Kind.CHOICE: _text,
    Kind.CHOICES: _text,
    Kind.FLAG: _flag,
    Kind.DURATION: duration,
    Kind.SHARE: share,
    Kind.NUMBER: _plain_number,
    Kind.WHOLE: _whole,
}
LISTS = frozenset({Kind.TEXTS, Kind.PATTERNS, Kind.CHOICES})


def parse(key: Key, value: Any) -> Any:
    """The value of a key, typed and in base units.

    Raises:
        ValueError: it is written wrongly or is not allowed; the text names an example.
    """
    if key.kind in LISTS:
        if not isinstance(value, list):
            raise ValueError(f"{show(value)} is no list; write it like {key.example}")
        return tuple(_one(key, item) for item in value)
    return _one(key, value)


def _one(key: Key, value: Any) -> Any:
    found = _READERS[key.kind](value)
    if key.choices and found not in key.choices:
        close = nearest(str(found), key.choices)
        hint = f"did you mean {show(close)}?" if close else f"choose {_either(key.choices)}"
        raise ValueError(f"{show(found)} is not known; {hint}")
    if key.above is not None and found <= key.above:
        raise ValueError(f"{show(value)} is not more than {key.above:g}; write it like {key.example}")
    if key.least is not None and found < key.least:
        raise ValueError(f"{show(value)} is less than {key.least:g}; write it like {key.example}")
    return found


def _either(words: tuple[str, ...]) -> str:
    words = tuple(show(w) for w in words)
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def write(key: Key, value: Any) -> str:
    """The value as TOML, such that `parse` gives it again."""
    if key.kind is Kind.DURATION:
        return show(duration_text(value))
    if key.kind is Kind.SHARE:
        text = share_text(value)
        return show(text) if text.endswith("%") else text
    if key.kind is Kind.NUMBER and float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    return show(getattr(value, "value", value))
