# Everything runs in .venv; each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q

.PHONY: setup demo images lint check test acceptance bench clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Autoclave needs Python 3.11 or newer")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -U "pip>=25.1"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.ready-dev: pyproject.toml $(VENV)/.ready
	@$(BIN)/python -m pip install -q --disable-pip-version-check --group dev
	@touch $@

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

test: lint
	@$(PYTEST) -n 2 --dist worksteal tests -m "not acceptance and not bench"

acceptance: $(VENV)/.ready-dev
	@AUTOCLAVE_WRITE_DOCS=$${AUTOCLAVE_WRITE_DOCS:-1} $(PYTEST) tests -m acceptance --timeout=7200 -p no:randomly

bench: $(VENV)/.ready-dev
	@$(PYTEST) tests/bench -m bench -s --timeout=1800 -p no:randomly

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache
