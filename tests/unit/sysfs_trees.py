"""The trees of tests/data (their format: README.md there), in memory and on disk, and a clock for reading them."""

import json
import re
from pathlib import Path

from ibmon.model import Now
from ibmon.recording import Frame
from ibmon.sysfs.discover import discover
from ibmon.virtualtree import VirtualTree

DATA = Path(__file__).resolve().parents[1] / "data"
NAMES = tuple(sorted(path.stem for path in DATA.glob("*.tree")))
LINE = re.compile(r"(?P<name>.+?) (?P<kind>=|->|!) (?P<value>.*)")


class StillClock:
    """A clock that stands."""

    def __init__(self, now=Now(100.0, 1_800_000_000.0)):  # noqa: B008 - an immutable value
        self.at = now

    def now(self):
        return self.at


def frame(name):
    """A tree of tests/data as the first frame of a recording."""
    directory, dirs, parts = "", [], {"=": {}, "->": {}, "!": {}}
    for number, line in enumerate((DATA / f"{name}.tree").read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            directory = line[1:-1]
            dirs.append(directory)
            continue
        match = LINE.fullmatch(line)
        assert match, f"{name}.tree:{number}: {line!r}"
        value = match["value"]
        if match["kind"] == "=":
            value = json.loads(value) if value.startswith('"') else value + "\n"
        parts[match["kind"]][f"{directory}/{match['name']}"] = value
    return Frame(t=0, dirs=tuple(dirs), links=parts["->"], files=parts["="], errnos=parts["!"])


def virtual(*frames):
    """A tree in memory after some frames."""
    tree = VirtualTree()
    for one in frames:
        tree.apply(one)
    return tree


def load(name):
    """A tree of tests/data in memory."""
    return virtual(frame(name))


def write(root, one):
    """A frame as a directory; files whose reading fails are left out, as a plain directory cannot show them."""
    for path in one.dirs:
        (root / path).mkdir(parents=True, exist_ok=True)
    for path, target in one.links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)
    for path, content in one.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode())
    return root


def port_files(device, port=1, **contents):
    """Files of a port that is up, with others in place of some or beside them; None leaves one out."""
    base = f"class/infiniband/{device}/ports/{port}"
    usual = {
        "state": "4: ACTIVE\n",
        "phys_state": "5: LinkUp\n",
        "rate": "400 Gb/sec (4X NDR)\n",
        "link_layer": "InfiniBand\n",
    }
    files = {**usual, **{key.replace("__", "/"): value for key, value in contents.items()}}
    return {f"{base}/{name}": value for name, value in files.items() if value is not None}


def found(*frames, name="mlx5_0", **options):
    """A device as it is discovered in these frames."""
    return discover(virtual(*frames), name, 7, **options)
