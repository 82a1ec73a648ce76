# `make demo` and `make test` share one .venv, which either makes from the pinned constraints.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := src tests benchmarks runs examples

.PHONY: help demo test check slow fuzz torture bench results clean
help: ## say what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[demo,words,dev]'
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null 2>&1 || true  # on all cores, where pip takes one
	@touch $@

demo: $(VENV)/ready ## run the main job on the embedded default
	$(BIN)/unrank demo

check: $(VENV)/ready ## format, lint and types
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

test: check ## check, then all quick tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

slow: $(VENV)/ready ## tests that take minutes
	$(BIN)/python -m pytest -m slow

fuzz: $(VENV)/ready ## 20,000 spoiled files for the readers, and 500 damaged ones
	PYTHONPATH=. $(BIN)/python -m tests.fuzz.run

torture: $(VENV)/ready ## kill jobs at random, fill disks, damage checkpoints: under an hour
	$(BIN)/python -m tests.torture

bench: $(VENV)/ready ## what a collection of a million documents costs, and how fast a step is
	$(BIN)/python benchmarks/size.py
	$(BIN)/python benchmarks/speed.py --rankers bi-encoder --samples 32 --batch 32 --lists 10 --seconds 1

results: $(VENV)/ready ## the page, figures and tables of the cells in results/, into results/made
	rm -rf build/results
	$(BIN)/unrank report results --out build/results/report.html --figures build/results/figures --tables build/results/tables
	$(BIN)/python runs/quarter.py results --out build/results/quarter
	$(BIN)/python runs/ablation.py results/ablation --out build/results/ablation
	rm -rf results/made
	mv build/results results/made

clean: ## remove what was made here
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
