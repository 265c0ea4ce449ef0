"""What of a sysfs tree goes into a recording: the files that ibmon reads, as a frame, and the difference of two frames.

Owns the list of those files. It reads through `ibmon.ports.Tree`, so that a caller's deadlines and filters hold; it
writes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping

from ibmon.ports import Tree
from ibmon.recording import Frame

# Paths as a reader names them; `*` is any one name. A link on the way is recorded and followed, one at the end only
# recorded. No netdev file that takes the rtnl lock (kernel: net/core/net-sysfs.c).
_DEVICE = ("node_guid", "sys_image_guid", "node_type", "node_desc", "fw_ver", "hca_type", "board_id", "parent")
_PORT = (
    *("state", "phys_state", "rate", "link_layer", "lid", "sm_lid", "cap_mask"),
    *("gids/0", "pkeys/0", "gid_attrs/types/0"),
)
_LINK = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
_FUNCTION = ("vendor", "device", "class", "numa_node", "sriov_numvfs", "uevent", "driver", *_LINK)
_SENSORS = ("name", *(f"temp{number}_{what}" for number in range(1, 6) for what in ("label", "input")))
_NETDEV = (
    "operstate",
    "carrier_changes",
    "carrier_up_count",
    "carrier_down_count",
    "type",
    "dev_port",
    "ifindex",
    "mtu",
)
PATTERNS: tuple[str, ...] = (
    *(f"class/infiniband/*/{name}" for name in _DEVICE),
    "class/infiniband/*/hw_counters/*",
    *(f"class/infiniband/*/ports/*/{name}" for name in _PORT),
    "class/infiniband/*/ports/*/gid_attrs/ndevs/0",
    *(f"class/infiniband/*/ports/*/{name}/*" for name in ("counters", "counters_ext", "hw_counters")),
    *(f"class/infiniband/*/device/{name}" for name in _FUNCTION),
    *(f"class/infiniband/*/device/physfn/{name}" for name in _LINK),
    *(f"class/infiniband/*/device/hwmon/*/{name}" for name in _SENSORS),
    *(f"class/infiniband/*/device/net/*/{name}" for name in ("dev_port", "ifindex")),
    "class/infiniband/*/device/infiniband_verbs/*/ibdev",
    "class/infiniband/*/device/../max_link_speed",
    "class/infiniband/*/device/../max_link_width",
    "class/infiniband_verbs/*/ibdev",
    "class/infiniband_mad/*/ibdev",
    "class/infiniband_mad/*/port",
    *(f"class/net/*/{name}" for name in (*_NETDEV, "device")),
    *(f"bus/pci/devices/*/{name}" for name in ("vendor", "class", "driver")),
)

_Wanted = dict[str, "_Wanted"]
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENODEV}


def _wanted(patterns: Iterable[str]) -> _Wanted:
    top: _Wanted = {}
    for pattern in patterns:
        at = top
        for part in pattern.split("/"):
            at = at.setdefault(part, {})
    return top


_TOP = _wanted(PATTERNS)


class _Capture:
    """One walk; collects what a frame needs by real path."""

    def __init__(self, tree: Tree, keep: Callable[[str], bool]) -> None:
        self.tree = tree
        self.keep = keep
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.errnos: dict[str, str | None] = {}
        self.dirs: dict[str, None] = {}
        self.netdevs: set[str] = set()  # that an RDMA device names as its own

    def walk(self, path: str, wanted: _Wanted) -> None:
        for part, below in wanted.items():
            for name in self._names(path) if part == "*" else (part,):
                inner = f"{path}/{name}" if path else name
                if self.keep(inner) and (part != "*" or self._concerns_us(path, inner)):
                    self._visit(path, name, inner, below)

    def _names(self, path: str) -> list[str]:
        try:
            names = self.tree.listdir(path)
            self.dirs[self.tree.realpath(path)] = None
        except OSError as error:
            self._failed(path, error)
            return []
        return sorted(names)

    def _concerns_us(self, above: str, path: str) -> bool:
        """Of netdevs those of RDMA devices, of PCI functions the network and InfiniBand ones (class 02)."""
        name = posixpath.basename(path)
        if above == "class/net":
            return name in self.netdevs or self.tree.exists(f"{path}/device/infiniband")
        if above == "bus/pci/devices":
            try:
                return self.tree.read(f"{path}/class").startswith(b"0x02")
            except OSError:
                return False
        return True

    def _visit(self, above: str, name: str, path: str, below: _Wanted) -> None:
        try:
            place = self._place(above, name)
            if below:
                if name != "..":
                    self._is_link(path, place)
                self.walk(path, below)
            elif self._is_link(path, place):
                self.dirs[self.tree.realpath(path)] = None  # so that it does not dangle; what dangles raises here
            else:
                self._file(path, place)
        except OSError as error:
            self._failed(path, error)

    def _place(self, above: str, name: str) -> str:
        real = self.tree.realpath(above) if above else ""
        return f"{real}/{name}" if real else name

    def _is_link(self, path: str, place: str) -> bool:
        try:
            target = self.tree.readlink(path)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return False
            raise
        self.links[place] = target
        return True

    def _file(self, path: str, place: str) -> None:
        try:
            data = self.tree.read(path)
        except OSError as error:
            if error.errno not in _ABSENT:
                self.errnos[place] = errno.errorcode.get(error.errno or 0, "EIO")
            return
        # A recording is text: bytes that are no UTF-8 (a vandalised node_desc) come back as U+FFFD.
        self.files[place] = text = data.decode(errors="replace")
        if path.endswith(("/gid_attrs/ndevs/0", "/parent")):
            self.netdevs.add(text.strip())

    def _failed(self, path: str, error: OSError) -> None:
        """A directory that cannot be listed is part of the picture; one that is not there is not."""
        if error.errno in _ABSENT:
            return
        with contextlib.suppress(OSError):
            path = self.tree.realpath(path)
        self.dirs[path] = None
        self.errnos[path] = errno.errorcode.get(error.errno or 0, "EIO")


def capture(tree: Tree, *, t: float = 0.0, keep: Callable[[str], bool] = lambda _: True) -> Frame:
    """Read once all that ibmon reads of a tree, as the first frame of a recording.

    Args:
        tree: the sysfs root.
        t: the time of the frame.
        keep: asked with each path as a reader names it (class/infiniband/mlx5_0, class/infiniband/mlx5_0/hw_counters);
            what it refuses is not opened, nor anything below.

    Failures to read become `errno` entries; the call itself raises nothing of the tree's.
    """
    found = _Capture(tree, keep)
    found.walk("", _TOP)
    used = set(_ancestors([*found.files, *found.links, *found.errnos]))
    return Frame(
        t=t,
        dirs=tuple(path for path in found.dirs if path not in used),
        links=found.links,
        files=found.files,
        errnos=found.errnos,
    )


def difference(before: Frame, after: Frame) -> Frame | None:
    """What turns one captured tree into a later one, at the later one's time; None when nothing changed."""
    old, new = _paths(before), _paths(after)
    alive = {*new, *_ancestors(new)}
    removed = {_highest_gone(path, alive) for path in old if path not in alive}
    cleared: Mapping[str, str | None] = {
        path: None for path in before.errnos if path in alive and path not in after.errnos
    }
    frame = Frame(
        t=after.t,
        remove=tuple(sorted(removed)),
        dirs=tuple(path for path in after.dirs if path not in before.dirs),
        links={path: target for path, target in after.links.items() if before.links.get(path) != target},
        files={path: text for path, text in after.files.items() if before.files.get(path) != text},
        errnos={**cleared, **{path: name for path, name in after.errnos.items() if before.errnos.get(path) != name}},
    )
    return None if frame == Frame(t=after.t) else frame


def _paths(frame: Frame) -> list[str]:
    return [*frame.dirs, *frame.links, *frame.files, *frame.errnos]


def _ancestors(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        above = posixpath.dirname(path)
        while above:
            yield above
            above = posixpath.dirname(above)


def _highest_gone(path: str, alive: set[str]) -> str:
    while (above := posixpath.dirname(path)) and above not in alive:
        path = above
    return path
