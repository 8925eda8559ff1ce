# Everything a developer or CI does, on a machine with only Python, git and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TORCH  := $(shell grep '^torch==' constraints.txt)
XDIST  ?= -n 2

.PHONY: browser demo test test-all check lint format types hooks clean install help

help:            ## what can be made
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP)  ## the virtual environment, made once

# torch is installed first and by its exact version: anything looser fetches gigabytes of CUDA packages.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[all,dev]"
	touch $@

demo: $(STAMP)   ## two small networks, trained and compared within two minutes
	$(BIN)/phcgnn demo -o runs/demo

# Each test process computes on one thread: two that spin on two threads each would wait for one another.
test: $(STAMP)   ## all tests but the slow ones, doctests and documentation included
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(XDIST) -m "not slow"

test-all: $(STAMP)  ## the slow ones too
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(XDIST)

# The tests of the report look at it in a real browser, and are skipped where there is none.
browser:         ## Debian's chromium, where it is missing and we are root
	@if command -v chromium >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null \
		|| echo "chromium could not be installed: reports are not looked at in the tests" >&2; \
	else echo "there is no chromium: reports are not looked at in the tests" >&2; fi

check: lint types  ## linter, formatter check, type checker

lint: $(STAMP)   ## linter and formatter check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)  ## mend what the linter and the formatter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)  ## type checker, nn included
	$(BIN)/mypy

hooks: $(STAMP)  ## run the checks of CI before every commit
	$(BIN)/pre-commit install

clean:           ## remove the environment and every build output
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
