# Everything a contributor or CI calls. The virtual environment lives in .venv; nothing is installed elsewhere.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Half of the tests' time is waiting, so more of them at once than the two cores of a small machine.
WORKERS ?= 3

.PHONY: demo test test-all e2e bench lint dist clean help

help:  ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "make: $(PYTHON) is older than 3.10; name another one: make PYTHON=python3.12 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group test --group lint
	@touch $@

demo: $(STAMP)  ## run the daemon on a simulated node: a port fails, the node is drained and given back
	$(BIN)/ibmon demo

test: $(STAMP)  ## unit tests and field cases on one interpreter
	$(BIN)/python -m pytest -n $(WORKERS)

test-all: ## the same on each of Python 3.10 to 3.13 that is present
	tests/all-pythons.sh -n $(WORKERS)

e2e: $(STAMP)  ## real kernel in a virtual machine, real Slurm, Prometheus, Kubernetes API (Linux, root)
	tests/e2e/run.sh

bench: $(STAMP)  ## the figures of docs/performance.md
	$(BIN)/python -m bench

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

dist: $(STAMP)  ## sdist and wheel in dist/
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python -m build --outdir dist .

clean:  ## remove what make made
	rm -rf $(VENV) .venvs dist .mypy_cache .ruff_cache
