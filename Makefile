# The two commands of the README are `make run` and `make test`; both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test bench soak smoke mutants install install-test clean

run: install
	$(BIN)/tta-bench run benchmark.yaml
	$(BIN)/tta-bench table

test: install-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

# Ratios of speed, measured in one run; a quiet machine makes them mean something.
bench: install
	$(BIN)/python -m bench

# Half an hour of killed processes, and the default grid on two Ray nodes of which one is lost half-way.
soak: install
	$(BIN)/python tools/lose_node.py benchmark.yaml
	$(BIN)/python tools/soak.py --minutes 20

# Small defects in the modules that numbers rest on, and whether the tests notice each; about half an hour.
# One module: make mutants MUTANTS="--module store"
mutants: install-test
	$(BIN)/python tools/mutants.py $(MUTANTS)

# Every recipe on the embedded networks; results go to a folder that may be thrown away.
smoke: install
	set -e; for recipe in recipes/*.yaml; do \
	  $(BIN)/tta-bench run $$recipe --micro --results results/smoke; done

install: $(VENV)/installed
install-test: $(VENV)/installed-test

# Stamps: an unchanged pyproject.toml is not installed again.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/installed-test: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable ".[test]"
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
