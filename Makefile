# On a fresh machine with Python 3.10+ and make: `make run` measures, `make test` tests. Nothing has to come first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Packages come from wherever pip is set up to get them; torch is pinned there, see constraints.txt.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests start hundreds of processes: each would compile all of opmark anew where Python may keep no bytecode.
export PYTHONDONTWRITEBYTECODE :=

# Tests run in processes side by side, as many as there are cores and eight at most; file by file where fixtures of files
# are costly. What is marked `serial` measures time or takes the whole machine: it runs alone.
JOBS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 8 ? cores : 8)))
PYTEST := $(BIN)/python -m pytest
# Each process computes with one thread of OpenBLAS: more threads than cores wait for each other.
PARALLEL := OPENBLAS_NUM_THREADS=1 $(PYTEST) -n $(JOBS) -m "not serial"
SIDE_BY_SIDE := $(PARALLEL) --dist worksteal
FILE_BY_FILE := $(PARALLEL) --dist loadfile
# AGAIN=1 runs only what failed the last time, one test at a time.
ifdef AGAIN
PYTEST += --again
SIDE_BY_SIDE := OPENBLAS_NUM_THREADS=1 $(PYTEST) -m "not serial"
FILE_BY_FILE := $(SIDE_BY_SIDE)
else
# A part that is not reached this time must not seem to have passed.
FORGET_FAILURES := rm -rf .pytest_cache/v/opmark
endif

.PHONY: run test test-side-by-side postgresql chromium screenshots test-store test-faults test-dashboard test-browser test-verdicts test-docs test-ranks test-frameworks test-models test-traces test-tuning test-fleet test-interop test-machine test-judge test-plugin guests test-guests lint types bench clean

run: $(VENV)/.installed  ## run the quick suite on the CPU
	$(BIN)/opmark run --suite quick --effort quick

test: $(VENV)/.installed-dev lint  ## everything that needs no GPU and has no target of its own
	@$(FORGET_FAILURES)
	+$(MAKE) --no-print-directory --jobs 2 types test-side-by-side
	$(PYTEST) --group=rest -m serial

test-side-by-side: $(VENV)/.installed-dev
	$(SIDE_BY_SIDE) --group=rest

test-verdicts: $(VENV)/.installed-dev  ## comparisons measured in turns, revisions, the gate, bisecting, rates of error
	@$(FORGET_FAILURES)
	$(SIDE_BY_SIDE) --group=verdicts
	$(PYTEST) --group=verdicts -m serial

test-store: $(VENV)/.installed-dev postgresql  ## the store on SQLite and on a PostgreSQL server that the tests start
	$(SIDE_BY_SIDE) --group=store

# The whole of it stays below five minutes: the last drill that has begun is finished. docs/reliability.md describes longer runs.
FAULT_SECONDS ?= 150
FAULT_SEED ?= 0

test-faults: $(VENV)/.installed-dev postgresql  ## kills, full disks, a stopped server, damaged files, random command lines, with a seed
	timeout 300 $(BIN)/python -m tests.faults --seconds $(FAULT_SECONDS) --seed $(FAULT_SEED)

# The store's tests start a server of their own, in a temporary folder, and need its programs only.
postgresql:  ## PostgreSQL's programs, from Debian's package where that can be installed
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing PostgreSQL's programs, once ..." && \
	    (apt-get install -y -qq --no-install-recommends postgresql >/dev/null 2>&1 || \
	     (apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql >/dev/null)); } || \
	  echo "PostgreSQL is not installed and cannot be from here: the tests of the store on it will be skipped"

test-dashboard: $(VENV)/.installed-dev postgresql  ## pages, JSON against its OpenAPI document, tokens, uploads, hostile ones too
	$(FILE_BY_FILE) --group=dashboard

test-browser: $(VENV)/.installed-dev chromium  ## the report and the dashboard in a real browser, and axe-core over every page
	$(PYTEST) tests/browser

# Playwright would bring a browser of its own; Debian's gets its security updates with the machine.
chromium:  ## a browser, from Debian's package where that can be installed
	@command -v chromium >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing chromium, once ..." && \
	    (apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 || \
	     (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null)); } || \
	  echo "chromium is not installed and cannot be from here: the tests in a browser will be skipped"

screenshots: $(VENV)/.installed-dev chromium  ## the pictures of docs/images, of a run measured here or of the store DB=...
	$(BIN)/python -m docs.screenshots $(if $(DB),--db $(DB))

test-docs: $(VENV)/.installed-dev  ## every command, every output and every block of the documents
	$(PYTEST) --group=docs  # one at a time: they measure, and disturbed numbers look different

test-ranks: $(VENV)/.installed-dev  ## several processes: collectives, failures of a rank, launchers, two hosts
	$(FILE_BY_FILE) --group=ranks

test-frameworks: $(VENV)/.installed-dev  ## every operator of every framework that shares this environment, and what torch.compile compiles, verified
	$(FILE_BY_FILE) --group=frameworks

test-models: $(VENV)/.installed-dev  ## whole models: the zoo, models of users, the example chip
	$(SIDE_BY_SIDE) --group=models

test-traces: $(VENV)/.installed-dev  ## recorded programs: capture, files of other systems, workloads made of them, replay
	$(FILE_BY_FILE) --group=traces

test-tuning: $(VENV)/.installed-dev  ## spaces, tuners, the database of tuned configurations, whole tunings
	$(SIDE_BY_SIDE) --group=tuning

test-fleet: $(VENV)/.installed-dev postgresql  ## a Ray cluster on this machine: nodes, drivers and servers that die, join and leave
	timeout 900 $(PYTEST) --group=fleet  # one at a time: each test uses the whole cluster

test-interop: $(VENV)/.installed-dev  ## files, command lines and READMEs of other systems
	$(SIDE_BY_SIDE) --group=interop

test-machine: $(VENV)/.installed-dev  ## what this machine reaches and what disturbs it: peaks, the doctor, locked clocks, profilers
	$(SIDE_BY_SIDE) --group=machine

test-judge: $(VENV)/.installed-dev  ## kernels that cheat, and honest ones, before the judge
	$(FILE_BY_FILE) --group=judge

guests: $(VENV)/.installed-dev  ## environments for TensorFlow and MXNet, made if need be
	@for guest in tensorflow mxnet; do \
	  $(BIN)/opmark env list --json | grep -q "\"name\":\"$$guest\"" || $(BIN)/opmark env create $$guest || exit 1; \
	done

test-guests: guests  ## every operator that these two have, verified
	$(FILE_BY_FILE) tests/guest

PLUGIN := plugins/opmark-example-npu
# Apart from $(VENV): what is installed there would show up in every other test.
PLUGIN_VENV := .venv-plugin

test-plugin: $(PLUGIN_VENV)/.installed  ## packages outside of src, installed beside opmark without any framework: a vendor's, pytest-opmark, the action
	cd $(PLUGIN) && $(CURDIR)/$(PLUGIN_VENV)/bin/python -m pytest
	cd plugins/pytest-opmark && $(CURDIR)/$(PLUGIN_VENV)/bin/python -m pytest
	cd plugins/opmark-action && $(CURDIR)/$(PLUGIN_VENV)/bin/python -m pytest

# The tests install the package themselves, into environments that see this one: what it needs is all that is here.
$(PLUGIN_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv --clear $(PLUGIN_VENV)
	$(PLUGIN_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --editable . 'pip>=22.3' 'hatchling>=1.25' 'pytest>=8' 'pytest-timeout>=2.3' 'pytest-xdist>=3.6'
	@touch $@

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy
	$(BIN)/mypy $(PLUGIN)/src
	$(BIN)/mypy plugins/pytest-opmark/src

bench: $(VENV)/.installed-dev  ## what opmark itself costs; results are kept in benchmarks/README.md
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) $(PLUGIN_VENV) .mypy_cache .ruff_cache .pytest_cache

# A stamp and not the interpreter: a virtual environment whose making was interrupted has one too.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "opmark needs Python 3.10 or newer: make PYTHON=...")'
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing opmark with torch into $(VENV), once ..."
	$(PIP_INSTALL) --editable '.[torch,serve]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP_INSTALL) --editable '.[torch,models,data,real-models,jax-models,jax,onnxruntime,openvino,tvm,tune,predict,schedule,ray,postgresql,tables,serve,browser,dev]'
	@touch $@
