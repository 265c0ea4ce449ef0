"""Real services for the end-to-end tests: Debian's Slurm and Prometheus, and the daemon under test beside them.

Everything here listens on 127.0.0.1 only and is stopped by process id. Nothing is installed on the host: packages are
unpacked into a cache outside the checkout (`debian`). No test lives here.
"""
