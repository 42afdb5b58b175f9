# Two commands are enough on a machine with git, make and Python: `make demo` and `make test`.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

# The newest Python that really runs and can make environments. A shim that only complains is passed over.
# `make PYTHON=...` chooses another one.
USABLE = import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3; do \
	if $$name -c '$(USABLE)' 2>/dev/null; then echo $$name; break; fi; done)

NO_PYTHON := Ashore needs Python 3.11, 3.12 or 3.13 with its venv module (Debian, Ubuntu: apt-get install python3-venv).

.PHONY: help demo test soak check bench clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo    the shipped policies in worlds they never saw, with caution, without, and a baseline; page, videos in demo/'
	@echo 'make test    everything that must hold: make check, then all tests'
	@echo 'make soak    the fault tests at long volumes, ten minutes; ASHORE_SOAK=50 makes a night of it'
	@echo 'make check   style, types and import directions'
	@echo 'make bench   steps per second of both worlds on this machine'
	@echo 'make clean   remove the environment and everything that was made'
	@echo 'Each installs what it needs into $(VENV) first.'

demo: $(VENV)/.installed
	@$(BIN)/ashore demo

test: check
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

# The runtime, what attacks it, and what a killed training run leaves. A test that hangs ends its worker, with all stacks.
SOAKED := tests/runtime tests/attacks tests/learning/test_checkpoint_faults.py tests/cli/test_storage_errors.py \
	tests/experiments/test_training.py tests/contracts/test_training_everywhere.py
ASHORE_SOAK ?= 1
SECONDS_PER_TEST = $(shell awk 'BEGIN { s = 600 * $(ASHORE_SOAK); print (s > 600) ? s : 600 }')
soak: $(VENV)/.installed-dev
	@ASHORE_SOAK=$(ASHORE_SOAK) $(BIN)/python -m pytest $(SOAKED) -n auto --maxprocesses 4 --dist worksteal \
		--durations 20 -o faulthandler_timeout=$(SECONDS_PER_TEST) -o faulthandler_exit_on_timeout=true

check: $(VENV)/.installed-dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-logo

bench: $(VENV)/.installed
	@$(BIN)/ashore bench env

clean:
	@rm -rf $(VENV) demo runs build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n '$(PYTHON)' || { echo '$(NO_PYTHON)' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'Installing into $(VENV); this takes a few minutes, once.'
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'Installing into $(VENV) with the tools for development; this takes a few minutes, once.'
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.installed $@
