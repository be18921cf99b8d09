# Everything runs in .venv; each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python -m

.PHONY: setup demo check test acceptance bench clean

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

check: $(VENV)/.ready-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(RUN) pytest -q tests/unit tests/conformance -m "not slow and not acceptance and not bench and not docker and not browser and not vllm"

test: check
	@$(RUN) pytest -q tests -m "not acceptance and not bench"

acceptance: $(VENV)/.ready-dev
	@$(RUN) pytest -q tests/acceptance -m acceptance --timeout=7200

bench: $(VENV)/.ready-dev
	@$(RUN) pytest -q tests/bench -m bench -s --timeout=1800

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache
