# Two commands for users: `make demo` and `make test`. Each makes the virtual environment if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
MODELS := $(wildcard packages/*/pyproject.toml)

.PHONY: demo test test-times test-slow test-hostile test-outside check lint docs benchmarks clean

demo: $(READY)
	$(BIN)/cotext demo

# One thread for tiny tensors; and modules are compiled once, also where the environment says that none is to be kept:
# tests start hundreds of processes.
TEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python

# A process per core, each with files of its own: what is trained for the tests of a file is trained once.
test: $(READY)
	$(TEST) -m pytest --numprocesses auto --dist loadfile

# The same, and at its end the slowest tests.
test-times: $(READY)
	$(TEST) -m pytest --durations 40 --numprocesses auto --dist loadfile

# Long tests, for a weekly run.
test-slow: $(READY)
	$(TEST) -m pytest -m slow

# Attacks at random, counted: kills, damage, settings, inputs; a quarter of an hour. COTEXT_HOSTILE_SEED=2 draws others.
test-hostile: $(READY)
	$(TEST) -m pytest -m hostile tests/hostile tests/serving

# With programs of others, as COMET in an environment of its own (COTEXT_COMET_PYTHON); skipped where they are not.
test-outside: $(READY)
	$(TEST) -m pytest -m outside

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test

# docs/recipes.md is made from the configuration itself, docs/replication.md from the recipes, and the API reference of
# the site from docstrings; a warning is an error.
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

# torch first and pinned: what comes later then finds it satisfied. Last, all packages with models.
$(READY): pyproject.toml constraints.txt $(MODELS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -r constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	$(if $(MODELS),$(BIN)/python -m pip install -q --no-deps --no-build-isolation $(dir $(MODELS)))
	touch $(READY)

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache
