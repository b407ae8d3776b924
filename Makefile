# Every target makes the virtual environment it needs: Python 3.11 or later and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Two test workers on two cores: more BLAS threads than one per worker only fight.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: help demo dist test-dist test test-cores test-browser test-torch test-long fuzz faults soak mutants coverage docs lint format bench reproduce clean

help:
	@echo "make demo    train on an embedded data set and show what comes out"
	@echo "make test    lint, check types, run tests, doctests and the README"
	@echo "make test-cores  the tests of numbers again, as on another processor"
	@echo "make test-browser  install Chromium where that is possible, run the tests of pages"
	@echo "make dist    build the wheel and the source archive in dist/"
	@echo "make test-dist  install the wheel alone and run the README's first example"
	@echo "make docs    build the documentation site in docs/_build/html"
	@echo "make test-torch  install PyTorch and run the tests of networks and .pt files"
	@echo "make test-long  property tests with many new examples (an hour)"
	@echo "make fuzz    210,000 damaged and crafted files, 10,000 for each reader"
	@echo "make faults  full disks, 50 kills, damaged checkpoints, lost schedulers"
	@echo "make soak    two hours of work in one process: memory, files and threads stay flat"
	@echo "make mutants  errors put into the core, of which tests must notice each"
	@echo "make coverage  lines and branches of the core that tests reach"
	@echo "make lint    ruff and mypy only"
	@echo "make format  rewrite the sources in the project's format"
	@echo "make bench   run the benchmarks"
	@echo "make reproduce  run the benchmarks behind docs/results.md (hours)"
	@echo "make clean   remove the environment, caches and builds"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp-demo: pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) -e ".[cli,plot,report]"
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) -e ".[dev]"
	@touch $@

$(VENV)/.stamp-docs: pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) -e ".[docs]"
	@touch $@

$(VENV)/.stamp-torch: pyproject.toml | $(VENV)/.stamp-dev
	$(PIP_INSTALL) -e ".[torch]"
	@touch $@

demo: $(VENV)/.stamp-demo
	$(BIN)/bagwise demo

test: lint
	@command -v chromium chromium-browser google-chrome chrome >/dev/null 2>&1 \
		|| echo "no Chromium found: the tests of pages are skipped; make test-browser runs them"
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2

# OpenBLAS has other kernels for each kind of processor, and their last digits differ. Prescott's
# are the oldest and run on every x86-64; a BLAS that has no such kernels takes its own.
CORE ?= Prescott
WITHOUT_NUMBERS := tests/browser tests/deep tests/detection tests/io tests/trust/test_faults.py \
	tests/trust/test_security.py tests/equivalence/test_distributed.py tests/datasets/test_fetch.py \
	tests/docs/test_examples.py
test-cores: $(VENV)/.stamp-dev
	OPENBLAS_CORETYPE=$(CORE) $(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 \
		$(addprefix --ignore=,$(WITHOUT_NUMBERS)) --ignore-glob='*/test_cli*.py' tests src/bagwise

# Debian's package where apt-get may install it, else whatever Chromium there is.
test-browser: $(VENV)/.stamp-dev
	@command -v chromium >/dev/null 2>&1 \
		|| { apt-get update -qq && apt-get install -y -qq chromium; } \
		|| echo "Chromium could not be installed; set BAGWISE_CHROMIUM to one"
	$(ONE_THREAD) $(BIN)/python -m pytest -ra tests/browser

dist: $(VENV)/.stamp-dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

test-dist: dist
	$(BIN)/python tests/installed_wheel.py dist

docs: $(VENV)/.stamp-docs
	$(ONE_THREAD) MPLBACKEND=Agg $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html
	@echo "open docs/_build/html/index.html"

test-torch: $(VENV)/.stamp-torch
	$(ONE_THREAD) $(BIN)/python -m pytest tests/deep tests/io tests/docs/test_images_guide.py tests/docs/test_examples.py src/bagwise/deep

test-long: $(VENV)/.stamp-dev
	$(ONE_THREAD) BAGWISE_LONG_TESTS=1 $(BIN)/python -m pytest tests/trust --deselect tests/trust/test_faults.py

# FIRST names the first of the numbered files, so that another run tries others.
# Networks and .pt files are tried where PyTorch is installed (make test-torch installs it).
INPUTS ?= 10000
FIRST ?= 0
fuzz: $(VENV)/.stamp-dev
	$(ONE_THREAD) PYTHONPATH=tests $(BIN)/python tests/trust/fuzz.py --inputs $(INPUTS) --first $(FIRST)

MINUTES ?= 120
soak: $(VENV)/.stamp-dev
	$(ONE_THREAD) PYTHONPATH=tests $(BIN)/python tests/trust/soak.py --minutes $(MINUTES)

MUTANTS ?= 100
mutants: $(VENV)/.stamp-dev
	$(ONE_THREAD) $(BIN)/python tests/trust/mutants.py --mutants $(MUTANTS)

faults: $(VENV)/.stamp-dev
	$(ONE_THREAD) BAGWISE_LONG_TESTS=1 $(BIN)/python -m pytest -s tests/trust/test_faults.py tests/equivalence/test_checkpoints.py tests/equivalence/test_distributed.py tests/datasets/test_fetch.py

# Settings in pyproject.toml say which files are the core.
coverage: $(VENV)/.stamp-dev
	$(ONE_THREAD) $(BIN)/python -m pytest -q --cov --cov-report=term-missing:skip-covered tests src/bagwise --ignore tests/browser --ignore tests/deep

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.stamp-dev
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(VENV)/.stamp-dev
	$(BIN)/python benchmarks/run.py

# What is done already is not run again; REPEATS=1 is a quick look.
REPEATS ?= 5
JOBS ?= 2
reproduce: $(VENV)/.stamp-dev
	$(ONE_THREAD) $(BIN)/bagwise benchmark --repeats $(REPEATS) --jobs $(JOBS) -o build/benchmark
	$(ONE_THREAD) $(BIN)/python benchmarks/assumption.py
	$(ONE_THREAD) $(BIN)/python benchmarks/acceptance.py
	$(ONE_THREAD) $(BIN)/python benchmarks/models.py
	$(ONE_THREAD) $(BIN)/python benchmarks/defaults.py
	$(ONE_THREAD) $(BIN)/python benchmarks/study.py

clean:
	rm -rf docs/_build docs/auto_examples docs/generated $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
