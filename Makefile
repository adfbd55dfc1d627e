# Every target sets up what it needs: on a fresh clone, `make demo` and `make test` are enough.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo network test slow privacy paper peers gpu reports cluster check lock clean

VENV := .venv
BIN := $(VENV)/bin
GPU_VENV := .venv-gpu
# Twice quiet: nothing but errors.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -qq

# The first Python that is new enough; `make test PYTHON=/path/to/python` names another one.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$candidate -c '$(NEW_ENOUGH)' 2>/dev/null; then echo $$candidate; break; fi; done)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed ## 100 agents learn alone and together; writes demo-out/report.html
	@$(BIN)/flockwise demo --out demo-out

network: $(VENV)/.installed-net ## 20 real agents on this machine with a private budget each, until Ctrl-C
	@test -d network-out || $(BIN)/flockwise network init examples/network-lowpass.toml --out network-out
	@$(BIN)/flockwise network up network-out

# Whole files to one process each: what a file compiles is compiled once.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

test: $(VENV)/.installed-dev ## the quick tests
	@$(PYTEST) -m "not slow and not privacy and not paper and not network and not gpu and not reports and not cluster"

slow: $(VENV)/.installed-dev ## the long tests: statistics over many runs, the paper's numbers
	@$(PYTEST) -m slow

privacy: $(VENV)/.installed-dev ## the long tests of privacy: crashes, attacks, accuracy within a budget
	@$(PYTEST) -m privacy

paper: $(VENV)/.installed-dev ## the long tests of what is reproduced and of what goes beyond the paper
	@$(PYTEST) -m paper

peers: $(VENV)/.installed-dev ## the long tests of real peers: processes, sockets, faults, hostile messages
	@$(PYTEST) -m network

reports: $(VENV)/.installed-dev ## the reports in a real browser, and the package from a wheel; installs Chromium if need be
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
		echo "Installing Chromium with apt-get ..."; \
		become=$$([ "$$(id -u)" = 0 ] || echo sudo -n); \
		{ $$become apt-get update -qq && $$become apt-get install -y -qq --no-install-recommends chromium; } >/dev/null \
		|| { echo "make reports needs the program chromium or google-chrome: install one of them."; exit 1; }; }
	@$(PYTEST) -m reports

# Triton's interpreter runs the kernels on any machine; PyTorch and Triton stay out of the environment above.
gpu: $(GPU_VENV)/.installed ## the gpu engine: under Triton's interpreter, and compiled for a GPU that is not there
	@TRITON_INTERPRET=1 $(GPU_VENV)/bin/python -m pytest -n auto --maxprocesses 4 -m gpu tests/gpu

# Ray and what it brings stay out of the other environments.
cluster: $(VENV)-cluster/.installed ## the long tests of shards on a Ray cluster, in an environment of their own
	@$(VENV)-cluster/bin/python -m pytest -m cluster tests/cluster

check: $(VENV)/.installed-dev ## formatting, lint, types and the one-way flow of imports
	@echo "ruff format" && $(BIN)/ruff format --check .
	@echo "ruff check" && $(BIN)/ruff check .
	@echo "pyright" && $(BIN)/pyright
	@echo "import-linter" && $(BIN)/lint-imports --no-logo

# Pinned with hashes for every platform and every supported Python, whatever this machine is.
COMPILE := $(BIN)/uv pip compile pyproject.toml --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --custom-compile-command "make lock"

lock: | $(BIN)/python ## choose and pin the newest dependencies anew
	@echo "Resolving the dependencies ..."
	@$(INSTALL) uv
	@$(COMPILE) --output-file requirements.lock
	@$(COMPILE) --extra net --extra secure --constraint requirements.lock --output-file requirements-net.lock
	@$(COMPILE) --group dev --constraint requirements.lock --output-file requirements-dev.lock
	@$(COMPILE) --group dev --extra cluster --extra graphs --constraint requirements-dev.lock \
		--output-file requirements-cluster.lock
	@! grep -nE '://|--(extra-)?index|--find-links' requirements*.lock \
		|| { echo "A lock file must name packages only, not where they were found."; exit 1; }

clean: ## remove what demo, tests and tools have written (not .venv)
	@rm -rf demo-out network-out lowpass-out build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find src tests benchmarks examples experiments -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The stamps are older than pyproject.toml or a lock file when something has to be installed again.
$(VENV)/.installed: pyproject.toml requirements.lock | $(BIN)/python
	@echo "Installing Flockwise (half a minute or more, once) ..."
	@$(INSTALL) --require-hashes -r requirements.lock
	@$(INSTALL) --no-deps --editable .
	@touch $@

$(VENV)/.installed-net: pyproject.toml requirements-net.lock | $(BIN)/python
	@echo "Installing Flockwise and what real agents need (half a minute or more, once) ..."
	@$(INSTALL) --require-hashes -r requirements-net.lock
	@$(INSTALL) --no-deps --editable .
	@touch $(VENV)/.installed $@

$(VENV)/.installed-dev: pyproject.toml requirements-dev.lock | $(BIN)/python
	@echo "Installing Flockwise and the tools for developing it (a minute or more, once) ..."
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@$(INSTALL) --no-deps --editable .
	@touch $(VENV)/.installed $(VENV)/.installed-net $@

# PyTorch for the processor alone, where the package index has it; its libraries for GPUs take gigabytes.
$(GPU_VENV)/.installed: pyproject.toml requirements.lock requirements-gpu.txt | $(BIN)/python
	@echo "Installing Flockwise with PyTorch and Triton (two minutes or more, once) ..."
	@$(BIN)/python -m venv $(GPU_VENV)
	@$(GPU_VENV)/bin/python -m pip install --disable-pip-version-check -qq --require-hashes -r requirements.lock
	@$(GPU_VENV)/bin/python -m pip install --disable-pip-version-check -qq -r requirements-gpu.txt
	@$(GPU_VENV)/bin/python -m pip install --disable-pip-version-check -qq --no-deps --editable .
	@touch $@

$(VENV)-cluster/.installed: pyproject.toml requirements-cluster.lock | $(BIN)/python
	@echo "Installing Flockwise and Ray (a minute or more, once) ..."
	@$(BIN)/python -m venv $(VENV)-cluster
	@$(VENV)-cluster/bin/python -m pip install --disable-pip-version-check -qq --require-hashes -r requirements-cluster.lock
	@$(VENV)-cluster/bin/python -m pip install --disable-pip-version-check -qq --no-deps --editable .
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(NEW_ENOUGH)' || { \
		echo "Flockwise needs Python 3.11 or newer and found none (tried $(or $(PYTHON),python3 and python3.11 to 3.14))."; \
		echo "Install one, or say where it is: make $(MAKECMDGOALS) PYTHON=/path/to/python"; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV) || { \
		echo "Python could not make a virtual environment (Debian and Ubuntu: install python3-venv)."; exit 1; }
