# `make demo` is for users, all other targets are for developers. Each makes the virtual environment if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
MODELS := $(wildcard packages/*/pyproject.toml)

.PHONY: demo test test-times test-slow test-hostile test-outside check lint docs benchmarks clean

demo: $(READY)
	$(BIN)/cotext demo

# One thread, because tensors are tiny. Compiled modules are kept even if the environment forbids it, because tests
# start hundreds of processes.
TEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python

# One process per core. Each process runs complete test files, so a run for the tests of a file is trained once.
test: $(READY)
	$(TEST) -m pytest --numprocesses auto --dist loadfile

# The same; then list the slowest tests.
test-times: $(READY)
	$(TEST) -m pytest --durations 40 --numprocesses auto --dist loadfile

# Long tests, for a weekly run.
test-slow: $(READY)
	$(TEST) -m pytest -m slow

# Random attacks: kills, damaged files, settings, inputs (15 minutes). COTEXT_HOSTILE_SEED=2 draws other attacks.
test-hostile: $(READY)
	$(TEST) -m pytest -m hostile tests/hostile tests/serving

# Tests with other programs, such as COMET in a separate environment (COTEXT_COMET_PYTHON); skipped if not installed.
test-outside: $(READY)
	$(TEST) -m pytest -m outside

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test

# Generates docs/recipes.md from the configuration, docs/replication.md from the recipes, and the API reference from
# docstrings. A warning is an error.
docs: $(READY)
	$(BIN)/python docs/make_recipes.py
	$(BIN)/python docs/make_replication.py
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build

benchmarks: $(READY)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[benchmarks]'
	$(BIN)/python -m benchmarks.speed.data
	$(BIN)/python -m benchmarks.speed.training --systems kinds marian
	$(BIN)/python -m benchmarks.speed.translating --systems kinds marian ctranslate2 ctranslate2-int8

# torch is pinned and installed first, so that later requirements are already satisfied; packages with models last.
$(READY): pyproject.toml constraints.txt $(MODELS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -r constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	$(if $(MODELS),$(BIN)/python -m pip install -q --no-deps --no-build-isolation $(dir $(MODELS)))
	touch $(READY)

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache
