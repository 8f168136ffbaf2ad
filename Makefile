# Two commands do all the set-up on a fresh machine with Python 3.11 or newer:
#   make demo    the main job, end to end, into ./demo
#   make test    linters, types and tests
#   make serve   the page on the demo's pictures, at http://127.0.0.1:8000
#   make docs    the documentation as a site, into ./site
#   make package sdist and wheel into ./dist, installed and tried without the source tree
#   make torture the attacks of the tests, for hours, with counts (docs/reliability.md); make torture PART=20 for minutes
#   make fuzz    the fuzzers for ten minutes each; make fuzz SECONDS=60
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help demo serve docs test lint types unit package extras lowest torture fuzz clean
.DEFAULT_GOAL := help

help:
	@sed -n '1,8p' Makefile

# The stamp is renewed whenever the dependencies change, so a pull never leaves a stale environment behind.
# torch comes first and alone: its exact pin keeps every later package from asking for another build.
define install
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kenthash needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[$(1)]'
	touch $@
endef

$(VENV)/.installed: pyproject.toml constraints.txt
	$(call install,dev)

# Only what the demo and the page need; where everything is installed, that is used.
$(VENV)/.demo: pyproject.toml constraints.txt
	$(call install,train$(comma)scenes$(comma)serve)

comma := ,

demo: $(if $(wildcard $(VENV)/.installed),$(VENV)/.installed,$(VENV)/.demo)
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
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder

package: $(VENV)/.installed
	$(BIN)/python scripts/package.py

# Each extra installed by itself: run before a release, since together they take some gigabytes.
extras: $(VENV)/.installed
	$(BIN)/python scripts/package.py --extras

# The tests with the lowest versions that pyproject.toml allows: run before a release, and when a bound is changed.
lowest: $(VENV)/.installed
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/lowest
	$(BIN)/uv pip install --quiet --python build/lowest/bin/python --resolution lowest-direct -e '.[dev]'
	build/lowest/bin/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

PART ?= 1
torture: $(VENV)/.installed
	PYTHONPATH=tests KENTHASH_PART=$(PART) $(BIN)/python tests/torture/torture.py

SECONDS ?= 600
fuzz: $(VENV)/.installed
	for target in filters uploads metadata packs; do \
		$(BIN)/python tests/fuzz/fuzz.py $$target -max_total_time=$(SECONDS) || exit 1; \
	done

clean:
	rm -rf $(VENV) demo artifacts build dist site src/*.egg-info
