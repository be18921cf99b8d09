# Everything runs in .venv; each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q
# Finds a Docker engine for a command, or starts one for its time; without one, the command says what it skips.
ENGINE := $(BIN)/python tests/docker_engine.py run --images --

.PHONY: setup machine demo images lint check test acceptance bench clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Autoclave needs Python 3.11 or newer")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -U "pip>=25.1"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.ready-dev: pyproject.toml $(VENV)/.ready
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[docker,testcontainers,browser]" --group dev
	@touch $@

machine:
	@.ci/packages

demo: setup
	@$(BIN)/autoclave demo

images: $(VENV)/.ready
	@$(BIN)/python images/build

lint: $(VENV)/.ready-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

check: lint
	@$(PYTEST) -n 2 tests/unit -m "not slow"

test: machine lint
	@$(ENGINE) $(PYTEST) -n 2 --dist worksteal tests -m "not acceptance and not bench"

acceptance: machine $(VENV)/.ready-dev
	@AUTOCLAVE_WRITE_DOCS=$${AUTOCLAVE_WRITE_DOCS:-1} $(ENGINE) $(PYTEST) tests -m acceptance --timeout=7200 -p no:randomly

bench: machine $(VENV)/.ready-dev
	@$(ENGINE) $(PYTEST) tests/bench -m bench -s --timeout=1800 -p no:randomly

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@tests/docker_engine.py clean
