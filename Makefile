# Everything starts here, from Python 3.11, make and nothing else. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO ?=
PYTEST ?=

export UV_PYTHON_DOWNLOADS := never
export PIP_DISABLE_PIP_VERSION_CHECK := 1
SYNC := $(BIN)/uv pip sync --quiet --require-hashes --python $(BIN)/python
INSTALL_SEMEL := $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .

# dev.txt holds all of run.txt with equal pins. Once it is there, the demo uses it too, so that nothing is ever installed down.
DEMO_READY := $(firstword $(wildcard $(VENV)/.dev) $(VENV)/.run)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test check prove docs clean

help:  ## this list
	@awk -F ':.*## +' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(DEMO_READY)  ## pay an invoice, be killed twice, pay it once (DEMO="--verbose" for more)
	@$(BIN)/semel demo $(DEMO)

test: $(VENV)/.dev  ## all tests but the long proofs (PYTEST="-k tail" for some)
	@$(BIN)/pytest $(PYTEST)

check: $(VENV)/.dev  ## lint, types, import contracts, spelling, documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/typos
	$(BIN)/pytest tests/tidy tests/docs
	@$(MAKE) --no-print-directory docs

prove: $(VENV)/.dev  ## the long proofs, with their figures
	@$(BIN)/pytest --prove -m prove -rP -o timeout=1800 $(PYTEST)

docs: $(VENV)/.dev  ## the documentation as a site, in site/
	$(BIN)/zensical build --clean --strict --config-file mkdocs.yml

clean:  ## remove what the other targets made
	rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .import_linter_cache .hypothesis .cache

$(VENV)/.uv: requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo 'semel needs Python 3.11 or newer, and "$(PYTHON)" is not that. Name one that is: make PYTHON=python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/uv.txt
	@touch $@

$(VENV)/.run: $(VENV)/.uv requirements/run.txt pyproject.toml
	@test -e $(VENV)/.dev || { set -ex; $(SYNC) requirements/run.txt; $(INSTALL_SEMEL); }
	@touch $@

$(VENV)/.dev: $(VENV)/.uv requirements/dev.txt pyproject.toml
	$(SYNC) requirements/dev.txt
	$(INSTALL_SEMEL)
	@touch $@
