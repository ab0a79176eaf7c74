# make demo    the examples: built, verified and, with a GPU, timed
# make test    lint, types, then all tests
# make lint | types | wheel | clean
#
# The first target makes a virtual environment in .venv and installs the package with its development tools into it.
# To use an interpreter that has them already, and no network:   make test VENV= PYTHON=python3

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?= -n 2 --dist loadfile

ifeq ($(strip $(VENV)),)
RUN := $(PYTHON)
READY :=
else
RUN := $(VENV)/bin/python
READY := $(VENV)/.kopt-ready
endif

# Without a GPU one fixed torch; without a compiler of the system, the one that PyPI has.
TORCH := $(if $(shell command -v nvidia-smi),,torch==2.13.0)
EXTRAS := $(if $(shell command -v nvcc),,[nvcc])

.PHONY: demo test lint types wheel clean

demo: $(READY)
	$(RUN) -m pytest examples/

test: lint types
	$(RUN) -m pytest $(PYTEST_ARGS) tests

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(READY)
	$(RUN) -m mypy

wheel: $(READY)
	$(RUN) -m build --wheel --no-isolation

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .benchmarks

# --group needs pip 25.1
$(VENV)/.kopt-ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade "pip>=25.1"
	$(if $(TORCH),$(RUN) -m pip install --quiet $(TORCH))
	$(RUN) -m pip install --quiet --editable ".$(EXTRAS)" --group dev
	touch $@
