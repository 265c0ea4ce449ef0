"""The scripts of deploy/slurm as a cluster's hooks, with a verdict for each of its nodes.

Owns: the scripts' copies, the wrapper that finds a node's verdict, and what they were called with. Must not: import
ibmon.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .daemon import COMMAND

if TYPE_CHECKING:
    from collections.abc import Iterable

HOOKS = Path(__file__).parents[3] / "deploy/slurm"
REASON = "ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id 7f3a9c]"
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Hooked:
    """What a cluster needs whose Prolog, HealthCheckProgram and Epilog are ours; the lines of slurm.conf in `settings`.

    All nodes are one host, so a wrapper tells ibmon by SLURMD_NODENAME which node's verdict to read, and writes down in
    which environment it was called.
    """

    def __init__(self, directory: Path, nodes: Iterable[str], *, health_check: bool = True) -> None:
        self.directory = directory
        directory.chmod(0o755)
        wrapper = directory / "ibmon"
        wrapper.write_text(
            f"#!/bin/sh\n/usr/bin/env > {directory}/$PPID.env\n"
            f'/usr/bin/test -e "{directory}/$SLURMD_NODENAME.hangs" && /usr/bin/sleep 60\n'
            f'exec {COMMAND} --config "{directory}/$SLURMD_NODENAME.toml" "$@"\n'
        )
        wrapper.chmod(0o755)
        for name in ("prolog", "healthcheck", "epilog"):
            text = (HOOKS / f"{name}.sh").read_text()
            assert text.count("IBMON=/usr/bin/ibmon\n") == 1
            text = text.replace("IBMON=/usr/bin/ibmon\n", f"IBMON={wrapper}\n")
            # Where the hook itself was called, and in which environment.
            text = text.replace("#!/bin/sh\n", f"#!/bin/sh\n/usr/bin/env >> {directory}/{name}.$SLURMD_NODENAME\n", 1)
            (directory / f"{name}.sh").write_text(text)
            (directory / f"{name}.sh").chmod(0o755)
        self.settings = (
            f"Prolog={directory}/prolog.sh\nEpilog={directory}/epilog.sh\nSchedulerParameters=nohold_on_prolog_fail\n"
        )
        if health_check:
            self.settings += f"HealthCheckProgram={directory}/healthcheck.sh\nHealthCheckInterval=3\n"
        for node in nodes:
            (directory / f"{node}.run").mkdir()
            (directory / f"{node}.toml").write_text(f'[state]\nruntime_directory = "{directory}/{node}.run"\n')
            self.verdict(node, held=False)

    def verdict(self, node: str, *, held: bool) -> None:
        """What the daemon of a node last said: unfit, and drained by ibmon or not."""
        owned = {"id": "7f3a9c", "reason": REASON, "asked": 1.0, "held": True} if held else None
        document = {
            "v": 1, "node": node, "boot_id": BOOT, "monotonic": time.monotonic(), "fitness": "unfit", "why": "bad",
            "mode": "drain", "drain": {"owned": owned, "overridden": False}, "findings": [], "ports": [],
        }  # fmt: skip
        beside = self.directory / f"{node}.run/.new"
        beside.write_text(json.dumps(document))
        beside.replace(self.directory / f"{node}.run/verdict.json")

    def calls(self, hook: str, node: str) -> list[dict[str, str]]:
        """The environments in which a hook was called on a node."""
        file = self.directory / f"{hook}.{node}"
        text = file.read_text() if file.exists() else ""
        return [dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))] if text else []
