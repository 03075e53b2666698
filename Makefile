# Two commands: `make book` and `make test`. Each needs Python 3.11 or newer, and sets up .venv the first time.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python -m
READY := $(VENV)/ready

.PHONY: book test clean

book: $(READY)            ## run the chapters that changed and render the book into _build/html
	$(RUN) pavlov build

test: $(READY)            ## lint and test everything, the book included (in a headless Chromium)
	$(RUN) ruff check .
	$(RUN) pytest -n 2 --dist loadfile

clean:                    ## forget all results and pages, and keep .venv
	rm -rf _build

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing the pinned requirements into $(VENV); this takes a few minutes."
	$(RUN) pip install --quiet -r requirements.txt
	$(RUN) pip install --quiet --no-build-isolation --no-deps -e .
	@touch $@
