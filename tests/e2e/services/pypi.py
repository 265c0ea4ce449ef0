"""Programs from PyPI that only a check needs: installed once into a cache outside the checkout, by name.

Owns: the cache `${XDG_CACHE_HOME:-~/.cache}/ibmon-e2e/pypi`. Must not: touch the virtual environment of the tests.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path

from . import debian
from .processes import ServiceError


def installed(*packages: str, alone: bool = False) -> Path:
    """Returns a directory with the packages (for PYTHONPATH) and their programs in `bin`; `alone`: only those named.

    Made aside, under a lock, and renamed into place, so that an interrupted run leaves nothing half done.

    Raises:
        ServiceError: when pip cannot install one; the text is pip's own.
    """
    cache = debian.cache_directory().parent / "pypi"
    cache.mkdir(exist_ok=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *(["--no-deps"] if alone else [])]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    target = cache / "-".join([*sorted(packages), version]).replace("==", "_")
    with (cache / "lock").open("w") as lock, tempfile.TemporaryDirectory(prefix="build.", dir=cache) as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            aside = Path(scratch) / "packages"
            done = subprocess.run(
                [*pip, "--target", aside, *packages],
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            if done.returncode:
                raise ServiceError(f"pip install {' '.join(packages)}: {done.stderr.strip()}")
            aside.rename(target)
    return target
