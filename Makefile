# Everything a fresh machine needs is installed into .venv by the first target that is asked for.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Modules are compiled when they are first imported: most of what is installed never is. Images of containers often say
# that nothing compiled is to be kept: then every process would compile torch and transformers again.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
# Environments of their own: the lowest versions that pyproject.toml admits, and the merge tools that tests compare with.
LOWEST := .venv-lowest
PEERS := .venv-peers
LOWEST_PYTHON ?= $(or $(shell command -v python3.11),$(PYTHON))

.PHONY: install demo demo-sizes test test-whole test-architectures test-matrix test-lowest test-peers test-ray mutants fuzz lint tables constraints docs look notebooks wheel bench rows results clean

install: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v < (3, 14) or sys.exit(f"fusionlab needs Python 3.11 to 3.13, and $(PYTHON) is {v[0]}.{v[1]}; name another with make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "Installing fusionlab and what it needs (some minutes, several GB) ..."
	$(INSTALL) --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/fusionlab demo --output demo --overwrite

# A small and a large model from different seeds.
demo-sizes: $(STAMP)
	$(BIN)/fusionlab demo --sizes --output demo-sizes --overwrite

test: $(STAMP)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest

# Every test with all of its cases: make test tries a part of long tables, and leaves out what takes long.
test-whole: $(STAMP)
	EVERY_ARCHITECTURE=1 TEST_EXAMPLES=200 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest

# Processor capabilities, threads, orders and hash seeds; make test-matrix RUNS="1 3" for some of the runs.
test-matrix: $(STAMP)
	$(BIN)/python -m tests.matrix $(RUNS)

test-lowest: $(LOWEST)/.installed
	HF_HUB_OFFLINE=1 $(LOWEST)/bin/python -m pytest

$(LOWEST)/.installed: pyproject.toml $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(LOWEST_PYTHON) $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[dev]'
	@touch $@

test-peers: $(PEERS)/.installed
	HF_HUB_OFFLINE=1 MERGEKIT_PYTHON=$(PEERS)/bin/python FUSION_BENCH_PYTHON=$(PEERS)/bin/python \
	  $(BIN)/python -m pytest tests/merging/test_mergekit.py tests/merging/test_fusion_bench.py

$(PEERS)/.installed: $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(PEERS)
	$(BIN)/uv pip install --quiet --python $(PEERS)/bin/python 'mergekit>=0.1.5,<0.2' 'fusion-bench>=0.2.33,<0.3' \
	  'hydra-core>=1.3'
	@touch $@

# The cells of a grid on a Ray cluster of two local nodes, of which one is killed in the middle.
test-ray: $(STAMP)
	@$(BIN)/python -c 'import ray' 2>/dev/null || $(INSTALL) --editable '.[ray]'
	RAY_CLUSTER=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 0 tests/grid/test_ray_cluster.py

# Changes lines of the source, one at a time, and asks whether a test notices; make mutants SAMPLE=60 ONLY=merging
# JOBS=2; AGAIN=1 tries the survivors of the last run.
SAMPLE ?= 200
SEED ?= 0
JOBS ?= 1
mutants: $(STAMP)
	@$(BIN)/python -c 'import cosmic_ray, coverage' 2>/dev/null || $(INSTALL) --editable '.[mutants]'
	$(BIN)/python -m tests.mutation --sample $(SAMPLE) --seed $(SEED) --jobs $(JOBS) --only '$(ONLY)' $(if $(AGAIN),--again)

# Damaged inputs with any seed, kills, and sizes of a full disk: make fuzz SEED=7 N=3000 KILLS=100 DISKS=20; one case is
# repeated by make fuzz FIRST=17 N=1 KILLS=0 DISKS=0.
N ?= 3000
FIRST ?= 0
KILLS ?= 100
DISKS ?= 20
fuzz: $(STAMP)
	$(BIN)/python -m tests.robustness.fuzz --seed $(SEED) --cases $(N) --first $(FIRST)
	KILLS=$(KILLS) DISKS=$(DISKS) SIGNALS=$(KILLS) $(BIN)/python -m pytest -n 0 $(addprefix tests/robustness/test_,kills.py full_disk.py interruptions.py)

# Infers the symmetry of every model class in the tests, and of more random networks, of which make test tries a part;
# matches two of each in every way, runs commands over them, and what takes long of growing and of memory.
test-architectures: $(STAMP)
	EVERY_ARCHITECTURE=1 TEST_EXAMPLES=200 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests/symmetry/infer tests/families tests/symmetry/test_biases.py tests/growing tests/streaming \
	  tests/matching/test_every_class.py tests/commands/test_every_class.py tests/merging/test_ot.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers auto

# Writes the tables of options in the docs again, out of the options' docstrings.
tables: $(STAMP)
	$(BIN)/python -m tests.docs_tables

# The pages of docs/, README and examples as a site in site/; any warning fails.
docs: $(STAMP)
	@$(BIN)/python -c 'import mkdocstrings, material, jupytext' 2>/dev/null || $(INSTALL) --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

# Writes constraints.txt: the versions in .venv, of all that fusionlab needs.
constraints: $(STAMP)
	$(BIN)/python -m tests.constraints

# The report of the demo and pages of the site in a headless Chromium: at three widths in both modes, and by axe-core.
LOOK ?= demo/report.html site/index.html site/start/two_vits.html site/which_method.html
look: $(STAMP)
	$(BIN)/python -m tests.browser $(LOOK)

# The examples, executed two at a time, in notebooks/; their pictures lie beside them.
notebooks: $(STAMP)
	@$(BIN)/python -c 'import jupytext, nbconvert, ipykernel, peft' 2>/dev/null || $(INSTALL) --editable '.[notebooks]'
	rm -rf notebooks
	printf '%s\n' $(notdir $(basename $(wildcard examples/*.py))) | OMP_NUM_THREADS=1 xargs -P 2 -I NAME sh -c 'mkdir -p notebooks/NAME && \
	  $(BIN)/python -m jupytext --quiet --to ipynb --set-kernel python3 --execute --run-path $(CURDIR)/notebooks/NAME \
	  --output notebooks/NAME.ipynb examples/NAME.py || exit 255'

# Builds wheel and sdist, installs the wheel where nothing of the checkout is, and walks through docs/start from there.
wheel: $(STAMP)
	$(BIN)/python -m tests.first_hour

# Measures what is missing of the pages that are written from measurements (docs/results/protocol.md), and goes on where it
# was stopped; make results writes the pages from what is measured.
rows: $(STAMP)
	$(BIN)/python benchmarks/same_base.py
	$(BIN)/python benchmarks/same_base_data.py
	$(BIN)/python benchmarks/same_base.py --setting text
	$(BIN)/python benchmarks/same_base_data.py --setting text
	$(BIN)/python benchmarks/same_base.py --setting adapters
	$(BIN)/python benchmarks/same_base_data.py --setting adapters
	$(BIN)/python benchmarks/same_base.py --setting photos
	$(BIN)/python benchmarks/same_base_data.py --setting photos
	$(BIN)/python benchmarks/different_sizes.py
	$(BIN)/python benchmarks/sizes_trained.py
	$(BIN)/python benchmarks/digits_pairs.py
	$(BIN)/python benchmarks/merge_methods.py
	$(BIN)/python benchmarks/assignments.py
	$(BIN)/python benchmarks/encoders.py
	$(BIN)/python benchmarks/trained_pairs.py cifar10
	$(BIN)/python benchmarks/trained_pairs.py experts
	$(BIN)/python benchmarks/trained_pairs.py gpt2_untied
	$(BIN)/python benchmarks/trained_pairs.py gpt2_tied
	$(BIN)/python benchmarks/trained_pairs.py deberta
	$(BIN)/python benchmarks/optimisers.py
	$(BIN)/python benchmarks/measures.py
	test -d checkpoints/gpt2_shakespeare_tokens || $(BIN)/python benchmarks/shakespeare_tokens.py
	$(BIN)/python benchmarks/gpt2_tokens.py

results: $(STAMP)
	$(BIN)/python benchmarks/same_base.py --page
	$(BIN)/python benchmarks/same_base.py --setting text --page
	$(BIN)/python benchmarks/same_base.py --setting adapters --page
	$(BIN)/python benchmarks/same_base.py --setting photos --page
	$(BIN)/python benchmarks/pairs_figure.py
	$(BIN)/python benchmarks/different_sizes.py --page
	$(BIN)/python benchmarks/on_gpu.py --page
	$(BIN)/python benchmarks/digits_pairs.py --page
	$(BIN)/python benchmarks/merge_methods.py --page
	$(BIN)/python benchmarks/assignments.py --page
	$(BIN)/python benchmarks/encoders.py --page
	$(BIN)/python benchmarks/trained_pairs.py cifar10 --page
	$(BIN)/python benchmarks/trained_pairs.py experts --page
	$(BIN)/python benchmarks/trained_pairs.py gpt2_untied --page
	$(BIN)/python benchmarks/trained_pairs.py gpt2_tied --page
	$(BIN)/python benchmarks/trained_pairs.py deberta --page
	$(BIN)/python benchmarks/optimisers.py --page
	$(BIN)/python benchmarks/measures.py --page
	$(BIN)/python benchmarks/gpt2_tokens.py --page

bench: $(STAMP)
	$(BIN)/python benchmarks/matching.py

clean:
	rm -rf $(VENV) $(LOWEST) $(PEERS) demo demo-sizes site notebooks dist .look .matrix .mutants .pytest_cache .mypy_cache .ruff_cache .hypothesis
