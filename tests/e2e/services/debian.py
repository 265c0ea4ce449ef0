"""Debian packages without installing them: fetched by name with apt and unpacked into a cache outside the checkout.

Owns: the cache `${XDG_CACHE_HOME:-~/.cache}/ibmon-e2e/debian`. Must not: install, start or configure anything. No
maintainer script runs, so nothing starts by itself and no policy-rc.d is needed.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .processes import ServiceError

if TYPE_CHECKING:
    from collections.abc import Sequence

# --reinstall: what the host has installed is listed and fetched as well, for the tree must hold every package named;
# libraries the host already has are left to the host. NoLocking: nothing is installed, so dpkg's lock is not needed and
# an unprivileged user can do this too.
_APT = ("apt-get", "-qq", "-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=true")
_INSTALL = ("install", "--yes", "--reinstall", "--no-install-recommends")


def cache_directory() -> Path:
    """Returns the directory where slow things are kept between runs; it is created."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "ibmon-e2e" / "debian"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _apt(archives: Path, *arguments: str) -> str:
    """Runs apt-get with its own archive directory; returns its output, raises `ServiceError` with its complaint."""
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [*_APT, "-o", f"Dir::Cache::archives={archives}", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
    )
    if done.returncode:
        raise ServiceError(f"apt-get {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _wanted(packages: Sequence[str], scratch: Path) -> list[str]:
    """Returns the archive names that `packages` need on this host; asks for package lists when there are none."""
    try:
        listing = _apt(scratch, *_INSTALL, "--print-uris", *packages)
    except ServiceError:
        _apt(scratch, "update")
        listing = _apt(scratch, *_INSTALL, "--print-uris", *packages)
    # One line a package: 'URI' NAME_VERSION_ARCH.deb SIZE HASH
    return sorted(line.split()[1] for line in listing.splitlines() if line.startswith("'"))


def _unpack(packages: Sequence[str], root: Path, scratch: Path) -> None:
    """Fetches and unpacks into `root`; stale package lists (the archive has moved on) are renewed once."""
    archives = scratch / "archives"
    try:
        _apt(archives, *_INSTALL, "--download-only", *packages)
    except ServiceError:
        _apt(archives, "update")
        _apt(archives, *_INSTALL, "--download-only", *packages)
    root.mkdir()
    for archive in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", archive, root], check=True, timeout=120)


@functools.cache
def unpacked(*packages: str) -> Path:
    """Returns a directory that holds the files of `packages` and of the dependencies that this host lacks.

    The tree is made once for each set of package versions: aside, under a lock, and renamed into place, so that
    neither an interrupted run nor two at a time leave half a tree.

    Raises:
        ServiceError: when apt cannot name or fetch a package; the text is apt's own.
    """
    if shutil.which("apt-get") is None:
        raise ServiceError("apt-get is missing: the end-to-end tests take their services from Debian packages")
    cache = cache_directory()
    with (
        (cache / "lock").open("w") as lock,
        tempfile.TemporaryDirectory(prefix="build.", dir=cache) as scratch_name,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        scratch = Path(scratch_name)
        wanted = _wanted(packages, scratch / "listing")
        key = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]
        target = cache / f"{packages[0]}-{key}"
        if not target.is_dir():
            _unpack(packages, scratch / "root", scratch)
            (scratch / "root").rename(target)
        return target


def library_path(root: Path) -> str:
    """Returns a value for LD_LIBRARY_PATH that finds the libraries unpacked below `root`."""
    directories = {str(library.parent) for library in root.glob("usr/lib/**/lib*.so*")}
    return ":".join(sorted(directories))


def write_launcher(path: Path, program: Path, root: Path) -> None:
    """Writes an executable `path` that becomes `program` with the unpacked libraries of `root` in its search path.

    Clients can then be called by name from any process without LD_LIBRARY_PATH in that process.
    """
    path.write_text(f"#!/bin/sh\nLD_LIBRARY_PATH='{library_path(root)}' exec '{program}' \"$@\"\n")
    path.chmod(0o755)
