# Everything runs in .venv, which is built from the hashed lock files in requirements/.
# Needed on the machine: Python 3.11 or later, make, and a package index that pip can reach.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# How many processes share the tests of a tier. Each takes up to 3 GB where Spark runs.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest --durations=20
PARALLEL := $(PYTEST) -n $(WORKERS)

# Extra arguments, for instance: make test ARGS="-k swap", make lock ARGS=--upgrade
ARGS ?=

# One stamp per step: an edit of pyproject.toml downloads nothing again, and `make serve` does not
# install Spark.
LOCKED := $(VENV)/.locked
INSTALLED := $(VENV)/.installed
SPARK := $(VENV)/.spark
DEV := $(VENV)/.dev
UV := $(VENV)/.uv

# Other clients have their own environments, so that their dependencies do not restrict ours.
PYNESSIE := .venv-clients
SPARK35 := .venv-spark35

COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 \
	--generate-hashes --no-header --no-annotate --no-config --system-certs --quiet $(ARGS)

# Installs a lock and shows what is downloaded, so that minutes are not silent. The stamp is set only
# if pip succeeds, because the exit code of a pipe is that of its last command.
SHOW := awk '/^ *(Downloading|Using cached|Building wheels|Installing collected)/ { \
	sub(/^ */, "  "); if (length > 100) $$0 = substr($$0, 1, 97) "..."; print; fflush() }'
define INSTALL_AND_SHOW
@rm -f $@
@($(PIP) install --progress-bar off --require-hashes -r $< && touch $@) | $(SHOW)
@test -f $@
endef

.DEFAULT_GOAL := help
.PHONY: help setup spark dev serve test test-long test-nessie test-clients test-spark test-spark41 test-spark35 test-stores test-deploy check format bench bench-nessie bench-stores bench-spark lock clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Build .venv from the lock and install morag in it, editable

spark: $(SPARK) $(INSTALLED) ## Add what Spark jobs need: PySpark, PyArrow, PyIceberg and a Java

dev: $(DEV) $(INSTALLED) ## Add what Spark jobs, databases, tests and checks need

serve: setup ## Serve a catalog on http://127.0.0.1:19120, in ./morag-data (ARGS="--store memory:")
	$(BIN)/morag serve $(ARGS)

test: dev ## Run the tests that need nothing but PyPI (WORKERS=1 for one process)
	$(PARALLEL) $(ARGS)

test-long: dev ## Run the tests that take minutes, with the seeds of the day (tests/sampling.py)
	$(PARALLEL) -m "long and not nessie" --timeout=1800 $(ARGS)

test-nessie: dev ## Run the tests against Nessie (needs mvn)
	@command -v mvn >/dev/null || { echo "test-nessie needs mvn on the PATH" >&2; exit 1; }
	$(PARALLEL) -m nessie --timeout=1800 tests/nessie tests/client $(ARGS)

test-clients: setup $(PYNESSIE)/.locked ## Test the server with pynessie
	$(PYNESSIE)/bin/python -m pytest --durations=20 -m clients tests/interop $(ARGS)

test-spark: dev ## Test Spark on Iceberg tables, with Morag and with Nessie (needs mvn)
	@command -v mvn >/dev/null || { echo "test-spark needs mvn on the PATH" >&2; exit 1; }
	$(MAKE) --no-print-directory -j2 --output-sync=target test-spark41 test-spark35

test-spark41: dev
	$(PYTEST) -m spark --timeout=900 tests/interop tests/spark $(ARGS)

test-spark35: dev $(SPARK35)/.locked
	$(SPARK35)/bin/python -m pytest --durations=20 -m spark35 --timeout=900 tests/interop $(ARGS)

test-stores: dev ## Test every database that can be installed here (needs apt-get, mvn, go)
	$(PARALLEL) -m stores --timeout=900 tests/stores $(ARGS)

test-deploy: dev ## Test deploy/ with nginx, Helm and linters (needs apt-get, go)
	$(PARALLEL) -m deploy --timeout=1800 tests/deploy $(ARGS)

check: dev ## Lint, check the format, the types and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

format: dev ## Format the code and apply the safe fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: dev ## Run the benchmarks
	$(BIN)/python -m bench $(ARGS)

bench-nessie: dev ## Compare Morag with Nessie (needs mvn; ARGS="rocksdb content commit" for a part)
	@command -v mvn >/dev/null || { echo "bench-nessie needs mvn on the PATH" >&2; exit 1; }
	$(BIN)/python -m bench.nessie $(ARGS)

bench-stores: dev ## Measure commits on every store that can be installed here (ARGS=PostgreSQL for one)
	$(BIN)/python -m bench.stores $(ARGS)

bench-spark: dev ## Measure what Spark jobs cost (ARGS=export for one of them)
	$(BIN)/python -m bench.spark $(ARGS)

lock: setup $(UV) ## Pin all dependencies again (ARGS=--upgrade for the newest)
	$(COMPILE) pyproject.toml --group build -o requirements/base.txt
	$(COMPILE) pyproject.toml --all-extras --group dev -o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra spark -c requirements/dev.txt -o requirements/spark.txt
	$(COMPILE) pyproject.toml --extra all-stores -c requirements/base.txt -o deploy/requirements.txt
	$(COMPILE) --group pynessie -o requirements/pynessie.txt
	$(COMPILE) --group spark35 -o requirements/spark35.txt
	$(COMPILE) --group lock -o requirements/lock.txt
	@! grep -nE 'https?:|://|file:|^-|(^| )/' requirements/*.txt deploy/requirements.txt \
		|| { echo "A lock names packages, versions and hashes only" >&2; exit 1; }

clean: ## Remove the environments and everything that was generated
	rm -rf $(VENV) $(PYNESSIE) $(SPARK35) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --clear: remove packages that only an older lock named.
$(LOCKED): requirements/base.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --require-hashes -r $<
	touch $@

$(INSTALLED): $(LOCKED) pyproject.toml
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	touch $@

$(SPARK): requirements/spark.txt $(LOCKED)
	@echo "Installing PySpark, PyArrow, PyIceberg and a Java in $(VENV), from $<:"
	$(INSTALL_AND_SHOW)

$(DEV): requirements/dev.txt $(LOCKED)
	@echo "Installing what Spark jobs, databases, tests and checks need in $(VENV), from $<:"
	$(INSTALL_AND_SHOW)

$(UV): requirements/lock.txt $(LOCKED)
	$(PIP) install --quiet --require-hashes -r $<
	touch $@

$(PYNESSIE)/.locked: requirements/pynessie.txt
	$(PYTHON) -m venv --clear $(PYNESSIE)
	$(PYNESSIE)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r $<
	touch $@

$(SPARK35)/.locked: requirements/spark35.txt
	$(PYTHON) -m venv --clear $(SPARK35)
	$(SPARK35)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r $<
	touch $@
