# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Every target sets up what it needs in .venv; a machine with Python 3.10 or newer, make and a C++ compiler is enough.

# The first interpreter that runs and is new enough; 3.11 is the one that is tested most.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.10 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 15))' >/dev/null 2>&1 && { echo $$p; break; }; done)
JOBS ?= 2
EXTRAS ?= jax,torch,dev
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: setup demo test test-fast lint bench fuzz faults harnesses mutants mutation numerics docs docs-site release-check \
	clean distclean
.DEFAULT_GOAL := test

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.10 to 3.14 found. fix: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv

# Without .pyc files every start of a command costs a fifth of a second more.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install $(PIP_OPTIONS) --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	$(BIN)/python -m compileall -q nki_mlir
	@touch $@

setup: $(INSTALLED)

demo: setup
	$(BIN)/python tools/demo.py

test: setup
	$(BIN)/python -m tools.run_tests --jobs $(JOBS)

test-fast: setup
	$(BIN)/python -m tools.run_tests --jobs $(JOBS) --fast

lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy nki_mlir

# The peers that only benchmarks need are installed here; a peer that is missing is left out of the table.
bench: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]' || true
	$(BIN)/python bench/run.py
	$(BIN)/python bench/scoring.py --cpu

# Many more examples of the property tests than `make test` tries, and other ones each time, among them random kernels on
# all executors and on the evaluator of tests/oracle; then random inputs of each entry, of which a table says how many
# were accepted and executed. The tests take two thirds of NKI_MLIR_FUZZ_SECONDS, an hour, and the inputs the rest; what
# had no time is counted at the end. NKI_MLIR_FUZZ_SEED=number repeats a run.
FUZZ_SECONDS := $(or $(NKI_MLIR_FUZZ_SECONDS),3600)
FUZZ_SEED := $(or $(NKI_MLIR_FUZZ_SEED),$(shell date +%s))
fuzz: setup
	HYPOTHESIS_PROFILE=fuzz NKI_MLIR_FUZZ_SEED=$(FUZZ_SEED) NKI_MLIR_FUZZ_SECONDS=$$(($(FUZZ_SECONDS) * 2 / 3)) \
		$(BIN)/python -m pytest -v -n $(JOBS) --maxschedchunk=1 -m fuzz tests
	$(BIN)/python -m tests.fuzzing.campaign --jobs $(JOBS) --seconds $$(($(FUZZ_SECONDS) / 3)) --seed $(FUZZ_SEED)

# 1,000 random changes of right kernels: each is refused by nki-score, or right by the evaluator of tests/oracle.
mutants: setup
	$(BIN)/python -m tests.scoring.mutations --count 1000 --jobs $(JOBS)

# Programs written as public harnesses, by each of the three ways in which they find the stand-ins.
harnesses: setup
	NKI_EVERY_WAY=1 $(BIN)/python -m pytest -q -n $(JOBS) tests/harnesses

# Seeds faults in copies of the front end, which all executors share, and hunts each with random kernels.
faults: setup
	$(BIN)/python -m tests.seeded_faults.seeded --jobs $(JOBS)

# The worst error of each scalar function and conversion, over 10^7 values of float32: 20 minutes. `make docs` writes the page.
numerics: setup
	$(BIN)/python -m tools.numeric_errors

# Random faults in copies of compiler, executors and checkers, of which the tests find at least 95 in 100, or
# tools/mutation_survivors.txt says why not. COUNT=100 is a sample, which takes an hour; the first run runs all tests once
# more, to record which lines each runs.
mutation: setup
	$(BIN)/python -m tools.mutation --count $${COUNT:-1000} --jobs $(JOBS)

docs: setup
	$(BIN)/python tools/export_dialects.py
	$(BIN)/python tools/error_reference.py
	$(BIN)/python tools/stubs.py
	$(BIN)/python tools/coverage.py
	$(BIN)/python tools/structure.py
	$(BIN)/python tools/error_table.py
	$(BIN)/python tools/numerics.py

# The site in build/site/html, with all tutorials run anew; warnings are errors, links are checked. SITE_OPTIONS=--no-execute is
# quicker. What only the site needs is installed here.
docs-site: setup
	$(BIN)/python -m pip install $(PIP_OPTIONS) --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/python -m tools.docs_site.build $(SITE_OPTIONS)

# Builds what would be published, installs it on every interpreter that there is, and uses it. Takes minutes.
release-check: setup
	$(BIN)/python tools/release_check.py

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find nki_mlir tests tools examples bench -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
