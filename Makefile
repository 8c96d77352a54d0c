# Every target builds its own environment first: nothing is needed but Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGE := $(VENV)/.package
STAMP := $(VENV)/.installed
FLOWER := .venv-flower
WORKERS ?= 2
# Tests wait for disks and for nodes most of the time: three of them for a core.
TESTERS ?= 6
LOWEST := .venv-lowest
# Some machines forbid Python to keep what it compiled: every command and every node that a test starts
# would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick stress flower-test coverage lowest lint format notebooks docs bench reproduce dist clean

# The demonstration needs the package alone; the tools of developers come with the other targets.
$(PACKAGE): pyproject.toml papers/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dpadmm needs Python >= 3.11; set PYTHON=/path/to/it")'
	@echo "Installing, once: an environment of its own in $(VENV). It takes some minutes."
	@echo "1 of 3: the environment"
	@$(PYTHON) -m venv $(VENV)
	@echo "2 of 3: pip"
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@echo "3 of 3: dpadmm and what it needs"
	@$(BIN)/python -m pip install --editable ".[all]" --editable papers
	@touch $(PACKAGE)

$(STAMP): $(PACKAGE)
	@echo "Installing, once: what tests, lint and documentation need"
	@$(BIN)/python -m pip install --group dev
	@touch $(STAMP)

demo: $(PACKAGE)
	@$(BIN)/dpadmm demo

# One BLAS thread per worker: more would fight over the cores. Neighbouring tests stay with one worker,
# which starts what they share once, until another one has nothing left to do.
PYTEST = OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TESTERS) --dist worksteal
test: $(STAMP)
	$(PYTEST)

# What can be known within a minute: the linters, and the files whose tests take a few hundredths of a second each.
quick: TESTERS = $(WORKERS)
quick: lint
	$(PYTEST) --maxfail=5 @tests/quick.txt

stress: $(STAMP)
	$(PYTEST) -m slow

# Flower in an environment of its own: it pins typer, rich and packaging below ours, and with Ray for
# its simulation takes more than a gigabyte.
$(FLOWER)/.installed: pyproject.toml
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(FLOWER)/bin/python -m pip install --quiet --editable ".[flower,secure]" "flwr[simulation]" pytest hypothesis
	touch $@

flower-test: $(FLOWER)/.installed
	FLWR_TELEMETRY_ENABLED=0 OPENBLAS_NUM_THREADS=1 $(FLOWER)/bin/python -m pytest \
	    -W ignore::DeprecationWarning tests/flower

# Lines and branches that the tests reach, a row for each room.
coverage: $(STAMP)
	-OPENBLAS_NUM_THREADS=1 $(BIN)/coverage run -m pytest -n $(TESTERS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o .coverage.json
	$(BIN)/python tools/coverage_rooms.py .coverage.json

# The lowest versions that pyproject.toml names, in an environment of their own. Old packages warn of
# each other's deprecations, which is not what is tried here.
lowest:
	$(PYTHON) -m venv --clear $(LOWEST)
	$(PYTHON) tools/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(LOWEST)/bin/python -m pip install --quiet --constraint $(LOWEST)/constraints.txt \
		--editable ".[all]" --editable papers pytest pytest-xdist hypothesis jsonschema autodp
	OPENBLAS_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -n $(WORKERS) -W ignore::DeprecationWarning \
		tests/test_golden.py tests/test_estimators.py tests/data tests/ledger tests/privacy \
		tests/cli/test_account.py tests/cli/test_schema.py tests/cli/test_demo.py \
		tests/federation/test_node_parity.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The notebooks of examples/ again, in place.
notebooks: $(STAMP)
	$(BIN)/python tools/notebooks.py

docs: $(STAMP)
	$(BIN)/sphinx-build -W --keep-going -q -j $(WORKERS) docs docs/_build
	@echo "docs/_build/index.html"

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# Every figure of the papers, into the documentation; DPADMM_DATA names the folder with the data.
reproduce: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/dpadmm reproduce --all --jobs $(WORKERS) --output docs/reproduction

# The wheel and the sdist of both distributions.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist papers

clean:
	rm -rf $(VENV) $(FLOWER) $(LOWEST) docs/_build dist .coverage .coverage.json
