#!/bin/sh
# The end-to-end tests: a real kernel, Slurm, Prometheus and Kubernetes API on this machine. The entry of `make e2e`.
#
#   tests/e2e/run.sh [PYTEST ARGUMENT...]      e.g. tests/e2e/run.sh tests/e2e/vm -k hung
#
# PYTHON names another interpreter than .venv/bin/python. With CI set, a skipped test is a failed one. WORKERS says how
# many files are tested at once (2): most of their time is waiting for holds, quorums and guests.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}

fail() {
  echo "tests/e2e/run.sh: $*" >&2
  exit 2
}
[ "$(uname -s)" = Linux ] || fail "the end-to-end tests start servers and a kernel: they need Linux, not $(uname -s)"
[ "$(id -u)" = 0 ] || fail "the end-to-end tests install Debian packages and build a guest: run them as root"
command -v apt-get > /dev/null || fail "the servers and the guest come from Debian packages: apt-get is needed"
[ -x "$python" ] || fail "$python is not here: run 'make e2e', which makes it, or set PYTHON"

# Arguments that name tests replace the whole set.
for argument in "$@"; do
  case $argument in tests/*) whole= ;; esac
done
PYTHONPATH=tests/e2e:tests/unit${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m pytest -p noskip \
  -o testpaths=tests/e2e -o timeout=600 ${whole-tests/e2e -n "${WORKERS:-2}" --dist loadfile} "$@"
