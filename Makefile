# Two commands do all the set-up on a fresh machine with Python 3.11 or newer:
#   make demo    the main job, end to end, into ./demo
#   make test    linters, types and tests
#   make serve   the page on the demo's pictures, at http://127.0.0.1:8000
#   make docs    the documentation as a site, into ./site
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help demo serve docs test lint types unit clean
.DEFAULT_GOAL := help

help:
	@sed -n '1,5p' Makefile

# The stamp is renewed whenever the dependencies change, so a pull never leaves a stale environment behind.
# torch comes first and alone: its exact pin keeps every later package from asking for another build.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kenthash needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/kenthash demo --out demo

serve: demo
	$(BIN)/kenthash serve --index demo/scenes.kh --open

docs: $(VENV)/.installed
	$(BIN)/mkdocs build --strict

test: lint types unit

lint: $(VENV)/.installed
	$(BIN)/ruff check src tests scripts
	$(BIN)/ruff format --check src tests scripts
	$(BIN)/lint-imports --no-cache --no-logo

types: $(VENV)/.installed
	$(BIN)/mypy

unit: $(VENV)/.installed
	$(BIN)/pytest -n 2 --dist loadfile

clean:
	rm -rf $(VENV) demo artifacts build site src/*.egg-info
