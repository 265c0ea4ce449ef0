"""Debian packages for the guest and for building it: install, download, resolve.

Owns every call of apt and dpkg. It configures packages on this machine only where a tool is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# Another apt may be at work: wait for it. The sandbox user cannot write below a directory of root's.
_APT_GET = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "APT::Sandbox::User=root")
_ENVIRONMENT = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}


class AptError(Exception):
    """A package could not be had; the text says which call failed and what it answered."""


def _call(*argv: str, cwd: Path | None = None) -> str:
    done = subprocess.run(argv, cwd=cwd, env=_ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AptError(f"{' '.join(argv)}: exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _with_fresh_lists(*argv: str, cwd: Path | None = None) -> str:
    """The call's output; lists that are older than the mirror are renewed once."""
    try:
        return _call(*argv, cwd=cwd)
    except AptError:
        _call(*_APT_GET, "update")
        return _call(*argv, cwd=cwd)


def install(packages: Iterable[str]) -> None:
    """Installs on this machine."""
    names = list(packages)
    if names:
        _with_fresh_lists(*_APT_GET, "install", "-y", "--no-install-recommends", *names)


def install_missing_tools(program_of: Mapping[str, str]) -> None:
    """Installs each package (key) whose program (value) is not on the path."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    install(package for package, program in program_of.items() if shutil.which(program, path=path) is None)


def installed(package: str) -> bool:
    """True when the package is installed on this machine."""
    argv = ("dpkg-query", "-W", "-f", "${Status}", package)
    return "ok installed" in subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def newest_kernel(metapackage: str) -> tuple[str, str]:
    """Name and version of the kernel package that the metapackage stands for.

    Raises:
        AptError: this is not Debian, or its package lists cannot be had.
    """
    try:
        depends = _with_fresh_lists("apt-cache", "show", "--no-all-versions", metapackage)
    except AptError as error:
        raise AptError(f"the guest is made of Debian 12's packages, and {metapackage} is not here: {error}") from None
    fields = dict(line.split(": ", 1) for line in depends.splitlines() if ": " in line)
    package = fields["Depends"].split()[0].rstrip(",")
    policy = _call("apt-cache", "policy", package)
    candidate = next(line.split()[-1] for line in policy.splitlines() if "Candidate:" in line)
    return package, candidate


def download(package: str, directory: Path) -> Path:
    """The .deb of one package, without what it depends on."""
    _with_fresh_lists(*_APT_GET, "download", package, cwd=directory)
    return next(directory.glob(f"{package}_*.deb"))


def download_closure(packages: Iterable[str], directory: Path) -> list[Path]:
    """The .debs of the packages and of all that they need, as if nothing were installed."""
    (directory / "partial").mkdir(parents=True)
    status = directory / "empty-status"
    status.touch()
    options = (
        *("-o", f"Dir::State::status={status}"),
        *("-o", f"Dir::Cache::archives={directory}"),
        *("-o", "Debug::NoLocking=1"),
        *("-o", "APT::Install-Recommends=0"),
    )
    _with_fresh_lists(*_APT_GET, *options, "install", "-y", "--download-only", *packages)
    return sorted(directory.glob("*.deb"))


def unpack(deb: Path, directory: Path, *tar_options: str) -> None:
    """The files of a .deb into a directory; no maintainer script runs."""
    with subprocess.Popen(("dpkg-deb", "--fsys-tarfile", str(deb)), stdout=subprocess.PIPE) as source:
        argv = ("tar", "-x", "-C", str(directory), "--keep-directory-symlink", *tar_options)
        subprocess.run(argv, stdin=source.stdout, check=True)
    if source.returncode != 0:
        raise AptError(f"dpkg-deb cannot read {deb}")
