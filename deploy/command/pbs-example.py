#!/usr/bin/env python3
"""PBS Professional and OpenPBS for ibmon's command backend: an example to copy and to fit to a site.

The contract is docs/command-backend.md. In ibmon.toml:

    [action]
    scheduler = "command"
    [command]
    path = "/etc/ibmon/pbs-example.py"

Needs Python 3.8, pbsnodes and qmgr, and a user that PBS takes for an operator or manager:
    qmgr -c 'set server operators += ibmon@*'
For hosts of one vnode; one that is split into several shows "<various>" as its comment, which is never taken for ours.
"""

import json
import os
import socket
import subprocess
import sys

FORBIDDEN = 77  # ibmon takes this exit status for "no permission"; every other one but 0 means "not known, try again"

# Where PBS lies on most sites. ibmon hands over PATH and little else; PBS finds its server in /etc/pbs.conf.
os.environ["PATH"] += ":/opt/pbs/bin:/usr/local/bin"

# The words that PBS puts into a node's state (several between commas). What is not here is refused: an unknown word
# must not be taken for a node that is up.
UP = {"free", "busy", "job-busy", "job-exclusive", "resv-exclusive", "offline"}
DOWN = {"down", "state-unknown", "unresolvable", "stale"}
MAINTENANCE = {"maintenance", "provisioning", "wait-provisioning"}
OFF = {"sleep"}


class RefusedError(Exception):
    """PBS did not do it; the text goes to ibmon's log."""


def main(action):
    """Read the request, do what the action asks for, and print the answer where there is one."""
    request = json.load(sys.stdin)
    host = socket.gethostname().partition(".")[0]  # or request["node"], if ibmon's names are those of PBS
    if action == "observe":
        print(json.dumps(observe(host, with_pools=request["pools"])))
    elif action == "drain":
        drain(host, request["reason"])
    elif action == "release":
        release(host, request["reason"])
    else:
        raise RefusedError(f"there is no action {action!r}")


def observe(host, with_pools):
    """The node and, where they are asked for, the pools in which ibmon's limits count."""
    if not with_pools:
        return {"node": node(host, shown(host)[host])}
    raw = shown("-a")
    every = {name: node(name, found) for name, found in raw.items()}
    pools = {"all": list(every.values())}
    for name, found in raw.items():
        if "queue" in found:  # a node that serves one queue only; ibmon then counts in that queue
            pools.setdefault(found["queue"], []).append(every[name])
    return {"node": every[host], "pools": [{"name": name, "nodes": nodes} for name, nodes in pools.items()]}


def node(name, found):
    """One node in the words of the contract."""
    words = {word.strip() for word in found["state"].split(",")}
    unknown = words - UP - DOWN - MAINTENANCE - OFF
    if unknown:
        raise RefusedError(f"PBS says {', '.join(sorted(unknown))} of {name}, which this script does not know")
    state = "up"
    for word, group in (("off", OFF), ("down", DOWN), ("maintenance", MAINTENANCE)):
        if words & group:
            state = word
    drained = "offline" in words
    comment = str(found.get("comment", ""))  # pbsnodes writes a comment of digits as a number
    return {
        "name": name,
        "state": state,
        "drained": drained,
        # A comment of ours that still stands on a node which nobody holds offline is no drain.
        "reason": comment if drained and comment else None,
        "since": found.get("last_state_change_time"),
    }


def drain(host, reason):
    """First the comment, then the mark: a script that is killed in between leaves a comment and no drain.

    The comment goes through qmgr because pbsnodes -C cuts it after 79 characters (src/cmds/pbsnodes.c), and a reason
    that is not read back as it was written would make ibmon's own drain a stranger's.
    """
    before = node(host, shown(host)[host])
    if before["drained"] and before["reason"] != reason:
        raise RefusedError(f"{host} is offline already: {before['reason']}")
    if '"' in reason or "\\" in reason:
        raise RefusedError("qmgr has no way to write this reason")
    call("qmgr", "-c", f'set node {host} comment = "{reason}"')
    call("pbsnodes", "-o", host)  # running jobs go on; no new ones start


def release(host, reason):
    """Only if the node still is offline for the reason that ibmon saw: somebody may have taken it over since."""
    before = node(host, shown(host)[host])
    if not before["drained"]:
        return
    if before["reason"] != reason:
        raise RefusedError(f"{host} is offline for another reason by now: {before['reason']}")
    call("pbsnodes", "-r", "-C", "", host)


def shown(*what):
    """What PBS knows of nodes, by name."""
    return json.loads(call("pbsnodes", "-F", "json", *what))["nodes"]


def call(*command):
    """Run a command without a shell. No time limit here: ibmon ends this script and all that it started."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    said = " ".join((done.stderr.strip() or done.stdout.strip()).split())
    if "unauthorized" in said.lower():
        print(f"{command[0]}: {said}", file=sys.stderr)
        sys.exit(FORBIDDEN)
    raise RefusedError(f"{' '.join(command[:2])} failed with status {done.returncode}: {said}")


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "")
    except (RefusedError, OSError, ValueError, KeyError) as error:
        sys.exit(f"{type(error).__name__}: {error}" if not isinstance(error, RefusedError) else str(error))
