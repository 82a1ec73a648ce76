# All targets share one .venv, made from the pinned constraints by the first target that needs it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := src tests benchmarks runs examples

unexport PYTHONDONTWRITEBYTECODE  # pytest rewrites every test file; kept, that is done once and not in each run

.PHONY: help demo test check slow browser gpu fuzz torture attacks faults bench results gallery docs dist clean
help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[demo,words,dev]'
	@touch $@

$(VENV)/compiled: $(VENV)/ready
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true  # imports, and so compiles, what the tests need
	@touch $@

demo: $(VENV)/ready ## forget a part of Python's documentation, with nothing to download
	$(BIN)/unrank demo

check: $(VENV)/ready ## format, lint and types
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

test: $(VENV)/ready ## check, then all quick tests: six minutes on two cores, with the packages to install
	@$(MAKE) --no-print-directory -j 2 check $(VENV)/compiled
	$(BIN)/python -m pytest -n 2 --dist worksteal

slow: $(VENV)/ready ## tests that take minutes: killed processes, benchmarks, runs, real encoders
	$(BIN)/python -m pytest -m slow

browser: $(VENV)/ready ## tests of the pages of the report and of the desk in Chromium
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null && command -v chromedriver >/dev/null \
	  || { echo "make browser needs Chromium and its driver: apt-get install chromium chromium-driver"; exit 1; }
	@command -v npm >/dev/null && { [ -e build/axe/node_modules ] || npm install --silent --no-audit --prefix build/axe axe-core@4; } \
	  || echo "axe-core cannot be had from npm: the pages of the desk are not tested with it"
	$(BIN)/python -m pytest -m browser

gpu: $(VENV)/ready ## tests of the fast kernels, on an NVIDIA GPU
	$(BIN)/python -m pytest -m gpu

fuzz: $(VENV)/ready ## 20,000 mutated files for the readers, and 500 damaged ones
	$(BIN)/python -m pytest -m fuzz
	PYTHONPATH=. $(BIN)/python -m tests.fuzz.run

torture: $(VENV)/ready ## kill jobs at random, fill disks, damage checkpoints: under an hour
	$(BIN)/python -m pytest -m torture
	$(BIN)/python -m tests.torture

attacks: $(VENV)/ready ## carry out every attack of tests/attacks: none may succeed
	$(BIN)/python -m tests.attacks

faults: $(VENV)/ready ## put thirty faults into a copy of the code, one at a time: the quick tests must catch each
	$(BIN)/python tests/seeded_faults.py

bench: $(VENV)/ready ## measure a collection of a million documents, and the speed of a step
	$(BIN)/python benchmarks/size.py
	$(BIN)/python benchmarks/speed.py --rankers bi-encoder --samples 32 --batch 32 --lists 10 --seconds 1

results: $(VENV)/ready ## write the page, figures and tables of the records in results/ to results/made
	rm -rf build/results
	$(BIN)/unrank report results/cells.jsonl.gz --out build/results/report.html --figures build/results/figures --tables build/results/tables
	$(BIN)/python runs/quarter.py results/cells.jsonl.gz --out build/results/quarter
	$(BIN)/python runs/quarter.py results/quarter.jsonl.gz --out build/results/quarter-forms
	$(BIN)/python runs/quarter.py results/former.jsonl.gz --out build/results/quarter-former
	$(BIN)/python runs/destinations.py results/quarter.jsonl.gz --out build/results/destinations
	$(BIN)/python runs/ablation.py results/ablation.jsonl.gz --out build/results/ablation
	set -e; for name in words words-destinations; do \
	  $(BIN)/python runs/word_curves.py results/$$name.jsonl.gz --out build/results/$$name; done
	set -e; for name in places rivals rivals-second rivals-draw-41 strangers places-nfcorpus-half; do \
	  $(BIN)/python runs/places.py results/$$name.jsonl.gz >build/results/$$name.md; done
	$(BIN)/python runs/places.py --times results/place-times.jsonl.gz >build/results/place-times.md
	$(BIN)/python runs/rankers_table.py results/rankers.jsonl.gz >build/results/rankers.md
	$(BIN)/python runs/single.py results/single.jsonl.gz >build/results/single.md
	$(BIN)/python runs/row_of_requests.py results/requests.jsonl.gz >build/results/requests.md
	$(BIN)/python runs/modern.py results/modern.jsonl.gz >build/results/modern.md
	set -e; for name in car marco; do \
	  $(BIN)/python runs/ground_truth.py results/audit/truth-$$name.jsonl.gz >build/results/truth-$$name.md; \
	  $(BIN)/python runs/ground_truth.py results/audit/methods-$$name.jsonl.gz >build/results/methods-$$name.md; \
	  $(BIN)/python runs/audit_power.py results/audit/power-$$name.jsonl.gz >build/results/power-$$name.md; done
	set -e; for name in car heads; do \
	  $(BIN)/python runs/forms_table.py results/audit/forms-$$name.jsonl.gz >build/results/forms-$$name.md; done
	rm -rf results/made
	mv build/results results/made

gallery: $(VENV)/ready ## draw the paper's six experiments from results/ into docs/gallery
	$(BIN)/python runs/gallery.py

$(VENV)/docs $(VENV)/release: $(VENV)/%: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@touch $@

docs: $(VENV)/docs ## build the docs site in build/docs/html, offline; a warning or a broken link is an error
	$(BIN)/python -m sphinx -q -W --keep-going -c docs/site -d build/docs/made docs build/docs/html
	@echo "build/docs/html/index.html"

dist: $(VENV)/release ## build wheel and source archive in dist/ from the last commit, and check what is in them
	rm -rf dist
	$(BIN)/python -m tests.release dist

clean: ## remove everything that the other targets made
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
