#!/usr/bin/env bash
# Runs the tests on every Python 3.10 to 3.13 that this machine has (PATH, pyenv), one after the other.
# Prints one line a version; fails when one of them fails, and when none is there. Arguments go to pytest.
# PYTHONS="3.11 3.13" names other versions; REQUIRE=all fails where one of them is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

versions=${PYTHONS:-3.10 3.11 3.12 3.13}
tell='import sys; print("%d.%d" % sys.version_info[:2])'
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

interpreter() {  # the path of one interpreter of a version, or nothing
    local candidate
    for candidate in "$(command -v "python$1" || true)" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        # pyenv's shims stand in PATH for versions that are not selected, and fail when they are called.
        if [ -x "$candidate" ] && [ "$("$candidate" -c "$tell" 2>/dev/null)" = "$1" ]; then
            echo "$candidate"
            return
        fi
    done
}

one() {  # installs into .venvs/VERSION what the tests need, once for each state of pyproject.toml, and runs them
    local version=$1 python=$2 venv=.venvs/$1 stamp
    shift 2
    stamp=$venv/.installed
    if [ ! "$stamp" -nt pyproject.toml ]; then
        "$python" -m venv --clear "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable . --group test
        touch "$stamp"
    fi
    "$venv/bin/python" -m pytest "$@"
}

present=()
missing=()
failed=0
for version in $versions; do
    python=$(interpreter "$version")
    if [ -z "$python" ]; then
        missing+=("$version")
        continue
    fi
    present+=("$version")
    # Behind || or in an if, -e would not hold inside.
    set +e
    (set -e; one "$version" "$python" "$@") >"$logs/$version" 2>&1
    code=$?
    set -e
    summary=$(grep -E '[0-9]+ (passed|failed|error)' "$logs/$version" | tail -n 1 | tr -d = | xargs || true)
    if [ $code -ne 0 ]; then
        failed=1
        sed "s/^/python$version| /" "$logs/$version"
    fi
    echo "python$version: ${summary:-did not run (exit $code)}"
done
for version in ${missing[@]+"${missing[@]}"}; do echo "python$version: not on this machine"; done

if [ ${#present[@]} -eq 0 ]; then
    echo "tests/all-pythons.sh: none of Python $versions is on this machine" >&2
    exit 1
fi
if [ "${REQUIRE:-}" = all ] && [ ${#missing[@]} -gt 0 ]; then
    echo "tests/all-pythons.sh: missing: ${missing[*]}" >&2
    exit 1
fi
exit $failed
