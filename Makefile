# Every target sets up .venv by itself; the second time it is already there and nothing is installed.
#   PYTHON=python3.12   the interpreter to build .venv from
#   PIP_ARGS=…          more arguments for every pip install (another index, --verbose)
#   PYTEST_ARGS=…       more arguments for pytest, for instance PYTEST_ARGS='-k wordpiece -x'

PYTHON ?= python3
PIP_ARGS ?=
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install -c constraints.txt $(PIP_ARGS)
LAYER ?=
HEAD ?=

# After set-up nothing may reach for the network.
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_OFFLINE := 1

# Without .pyc files every worker and process of the tests would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint bench clean

help:
	@echo 'qkv: BERT and everything that led to it'
	@echo
	@echo '  make demo       what each system does, from word2vec to BERT (attention: LAYER= HEAD=), and a fine-tuned classifier; about 2 minutes'
	@echo '  make setup      .venv with everything needed to work on qkv'
	@echo '  make test       the tests, a few minutes on two cores'
	@echo '  make test-slow  the long tests'
	@echo '  make lint       ruff and mypy'
	@echo '  make bench      each benchmark in bench/'
	@echo '  make clean      remove .venv, caches and build outputs'

setup: $(VENV)/.installed-dev
	@echo 'Ready. Try:  . $(BIN)/activate && qkv --help'

demo: $(VENV)/.installed-demo
	@$(BIN)/qkv demo $(if $(LAYER),--layer $(LAYER)) $(if $(HEAD),--head $(HEAD))

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist worksteal $(PYTEST_ARGS)

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -m slow $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(VENV)/.installed-bench
	@set -e; for file in bench/*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

clean:
	rm -rf $(VENV) build dist qkv-demo src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# pip is the last thing a new environment gets, so its presence means the environment is whole.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		found=$$($(PYTHON) --version 2>/dev/null || echo 'not there'); \
		echo "error: qkv needs Python 3.11 or newer; '$(PYTHON)' is $$found." >&2; \
		echo '       Give another one: make setup PYTHON=python3.12' >&2; exit 2; }
	@echo "Making $(VENV) from $$($(PYTHON) --version) …"
	@$(PYTHON) -m venv $(VENV)

# A stamp is written only after pip has finished, so an interrupted install is taken up again.
# The build backend goes in first and builds without isolation: its version is pinned too.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing qkv[$*] into $(VENV) (one to three minutes the first time, torch is large) …"
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation -e '.[$*]'
	@if [ '$*' = dev ]; then touch $(VENV)/.installed-demo; fi
	@touch $@
