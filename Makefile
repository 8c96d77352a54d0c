# Every target builds its own environment first: nothing is needed but Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGE := $(VENV)/.package
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: demo test stress lint format docs bench reproduce clean

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

# One BLAS thread per worker: more would fight over the cores.
test: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

stress: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build
	@echo "docs/_build/index.html"

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# Every figure of the papers, into the documentation; DPADMM_DATA names the folder with the data.
reproduce: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/dpadmm reproduce --all --jobs $(WORKERS) --output docs/reproduction

clean:
	rm -rf $(VENV) docs/_build
