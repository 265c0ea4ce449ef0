"""The figures of docs/performance.md: measured on this machine, beside node_exporter, as ratios within one run.

`python -m bench` prints them, `python -m bench --write` also writes the page. Nothing here is part of the daemon.
"""
