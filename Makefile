# The two commands of the README are `make run` and `make test`; both set up .venv by themselves.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test test-slow docs bench soak smoke mutants install install-test install-docs clean

run: install
	$(BIN)/tta-bench run benchmark.yaml --tables

test: install-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/pytest -m "not slow" -n auto --maxprocesses 8 --dist worksteal

# Tests that kill processes, start Ray, a browser or another environment: one at a time, as they watch the clock.
test-slow: install-test
	$(BIN)/pytest -m slow

# The documentation as a site in site/, which needs no network to be read; broken links are errors.
docs: install-docs
	$(BIN)/mkdocs build --strict --quiet

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
install-docs: $(VENV)/installed-docs

# Each stamp is newer than pyproject.toml once its extra is installed.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

# Version 0.2.0 left an egg-info here, which Python would read before the installed entry points.
$(VENV)/installed: $(VENV)/bin/python pyproject.toml
	rm -rf tta_bench.egg-info
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/installed-test: $(VENV)/bin/python pyproject.toml
	rm -rf tta_bench.egg-info
	$(BIN)/pip install --quiet --editable ".[test,docs]"
	touch $@ $(VENV)/installed $(VENV)/installed-docs

$(VENV)/installed-docs: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable ".[docs]"
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) build site *.egg-info .mypy_cache .ruff_cache .pytest_cache
