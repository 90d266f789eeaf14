# Everything runs in .venv, which is made on first use and kept until pyproject.toml or constraints.txt change.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Where the real data files are, for the tests that want them. Tests skip, saying so, when it is not there.
LIFELONG_DATA ?= $(CURDIR)/data
export LIFELONG_DATA

SBOM   := .venv-sbom

.PHONY: cluster sbom bench torture demo test check format types imports data clean

demo: $(READY)
	$(BIN)/lifelong demo

test: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal

check: $(READY) format types imports test

# Ray is large, so that `dev` leaves it out; with it the tests of the engine `ray` run.
cluster: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,ray]'

.PHONY: docs pictures

# The site, in docs/build/html. A warning is an error; nothing is fetched.
docs: $(READY)
	OMP_NUM_THREADS=1 MPLBACKEND=agg $(BIN)/sphinx-build -W --keep-going -q -b html docs docs/build/html
	@echo docs/build/html/index.html

# The pictures of README and docs, and README's table of results, from the runs in results/runs.
pictures: $(READY)
	$(BIN)/python docs/pictures/drawings.py
	$(BIN)/python docs/pictures/weave.py
	$(BIN)/python docs/pictures/results.py
	$(BIN)/lifelong figure family-variation --size paper

# The long versions of tests/robust: 300 kills, 100,000 damaged files of each kind (hours; the next call goes on where one was
# ended), and what safety costs.
torture: $(READY)
	$(BIN)/python tests/robust/kills.py --kills 300 > results/robustness/kills.json
	$(BIN)/python tests/robust/mutations.py --count 100000
	$(BIN)/python tests/robust/workers.py --kills 50 > results/robustness/workers.json
	$(BIN)/python tests/robust/studies.py --kills 100 > results/robustness/studies.json
	$(BIN)/python benchmarks/robustness.py > results/robustness/costs.json

# What is installed, with versions and licences, in CycloneDX's format: sbom.json. The tool has an environment of its own,
# so that it does not list itself.
sbom: $(READY)
	test -x $(SBOM)/bin/cyclonedx-py || $(PYTHON) -m venv $(SBOM)
	$(SBOM)/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
	$(SBOM)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --short-PURLs --output-reproducible --of JSON -o sbom.json $(BIN)/python

# Speed and memory: ratios with their targets. FULL=1 for the ten tasks of Permuted MNIST too.
bench: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/all.py $(if $(FULL),--full)

format:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports

# Optional: lay out real data files for the tests, where a copy is at hand.
data: $(READY)
	test ! -f ../shared/data/prepare.py || $(BIN)/python ../shared/data/prepare.py $(LIFELONG_DATA)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) $(SBOM) sbom.json build dist docs/build docs/tutorials .mypy_cache .ruff_cache .hypothesis
