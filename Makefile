# The one way to set up, run, check and test Moldau. `make help` lists the targets.
#
# Environments are made once: a stamp in .venv is older than a lock file only when there is something to install.

PYTHON ?=
ARGS ?=
TESTS ?= tests

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Everything comes from the lock, build tools too, so pip has nothing to resolve and nothing to fetch by itself.
INSTALL := $(PIP) install --no-deps --require-hashes -r
# Compiled now, so that the first start is as quick as the second.
INSTALL_MOLDAU := $(PIP) install --no-deps --no-build-isolation --editable . && $(BIN)/python -m compileall -q src
PYTEST := $(BIN)/python -m pytest
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-annotate --custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help setup run test quick check format bench lock lock-upgrade clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## Make .venv with everything that running, checking and testing need

run: $(VENV)/.run ## Start a broker on this machine (ARGS="--port 9093 --data-dir DIR")
	@exec $(BIN)/moldau up $(ARGS)

test: $(VENV)/.dev ## Run every test: quick, interop, and Kafka's Java tools where Java and Maven are (TESTS=path)
	@$(PYTEST) -n auto --dist loadgroup $(TESTS)

quick: $(VENV)/.dev ## Run the quick tests only
	@$(PYTEST) -n auto --dist loadgroup -m "not interop and not java and not slow" $(TESTS)

check: $(VENV)/.dev ## Formatting, lint, types, import contracts, documentation
	@$(BIN)/ruff format --check --quiet --diff .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(PYTEST) tests/test_docs.py tests/test_rules.py

format: $(VENV)/.dev ## Format the code and fix what lint can fix
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

bench: $(VENV)/.dev ## Measure Moldau beside Apache Kafka (needs Java and Maven; ARGS=...)
	@$(BIN)/python -m bench $(ARGS)

lock: $(VENV)/.dev ## Bring the lock files in step with pyproject.toml
	@$(LOCK) pyproject.toml requirements-build.in --output-file requirements.lock
	@$(LOCK) pyproject.toml requirements-build.in --extra dev --constraint requirements.lock --output-file requirements-dev.lock

lock-upgrade: LOCK += --upgrade
lock-upgrade: lock ## The same, with the newest versions of everything

clean: ## Remove the environment and everything that was generated
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis src/*.egg-info
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# The development lock holds the runtime lock's versions and more, so it serves both.
$(VENV)/.dev: requirements-dev.lock requirements.lock pyproject.toml scripts/venv
	@scripts/venv $(VENV) $(PYTHON)
	@echo "Installing the development environment"
	@$(INSTALL) requirements-dev.lock
	@$(INSTALL_MOLDAU)
	@touch $(VENV)/.run $@

$(VENV)/.run: requirements.lock pyproject.toml scripts/venv
	@scripts/venv $(VENV) $(PYTHON)
	@echo "Installing Moldau"
	@$(INSTALL) requirements.lock
	@$(INSTALL_MOLDAU)
	@touch $@
