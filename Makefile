# Everything a newcomer or a CI machine needs; each target does its own set-up.
# It needs python3 (3.11 to 3.13) with pip and venv, and make.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Said before an installation: plain pip takes the CUDA build of torch, gigabytes that a machine without a GPU does not use.
CPU_BUILD = command -v nvidia-smi > /dev/null || test -n "$$PIP_EXTRA_INDEX_URL" || \
	echo "Without an NVIDIA GPU, the CPU build of torch saves gigabytes: export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"

.PHONY: help setup demo walk test quick lowest coverage check docs docs-live format bench reference clean

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort

# The command alone, enough for `make demo`.
$(VENV)/.base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(CPU_BUILD)
	@echo "Installing genelab into $(VENV) ..."
	$(PIP_INSTALL) -e .
	@touch $@

# With every extra and the development tools.
$(VENV)/.all: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(CPU_BUILD)
	@echo "Installing genelab with all extras into $(VENV); this takes some minutes ..."
	$(PIP_INSTALL) -e '.[all,dev]'
	@touch $(VENV)/.base $@

setup: $(VENV)/.all ## Create .venv with everything

DEMO_TASK = GeneLab-Inverted-Pendulum-v0
DEMO_RUN := logs/demo/$(shell date +%Y-%m-%d_%H-%M-%S)

demo: $(VENV)/.base ## Train the inverted pendulum to solved, evaluate and export it
	$(BIN)/genelab list
	@echo "Training $(DEMO_TASK): 9 s on two quiet cores; 40 is the most it can earn."
	$(BIN)/genelab train $(DEMO_TASK) --seed 1 --log-dir $(DEMO_RUN)
	$(BIN)/genelab eval $(DEMO_TASK) $(DEMO_RUN)
	$(BIN)/genelab export $(DEMO_TASK) $(DEMO_RUN) --out $(DEMO_RUN)/policy.ts
	@$(BIN)/python -m benchmarks.demo $(DEMO_RUN)

# The command and its web page.
$(VENV)/.viewer: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(CPU_BUILD)
	@echo "Installing genelab and its web page into $(VENV) ..."
	$(PIP_INSTALL) -e '.[viewer]'
	@touch $(VENV)/.base $@

walk: $(VENV)/.viewer ## Show a trained Go1 that walks, on a page for your browser
	$(BIN)/genelab play Genelab-Velocity-Flat-Unitree-Go1-v0 --agent trained --num-envs 4 --viewer web

test: $(VENV)/.all ## Run the whole test suite
	$(BIN)/python -m pytest -n 2 --dist loadgroup

QUICK = tests/config tests/managers tests/envs tests/scene tests/sim tests/mdp tests/motion

quick: $(VENV)/.all ## Run the tests of the inner layers, without Genesis: about a minute on two quiet cores
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "not genesis" $(QUICK)

LOWEST = .venv-lowest

lowest: ## Run the tests of the inner layers with the lowest versions that pyproject.toml allows; needs uv
	uv venv --no-config --allow-existing $(LOWEST)
	uv pip install --no-config --python $(LOWEST)/bin/python --torch-backend cpu --resolution lowest-direct \
		-e '.[onnx,plot,sb3,skrl,sweep,urdf,video,viewer,warp]'
	uv pip install --no-config --python $(LOWEST)/bin/python -c constraints.txt jsonschema mypy pytest pytest-timeout pytest-xdist
	$(LOWEST)/bin/python -m pytest -q -n 2 --dist loadgroup -m "not genesis" $(QUICK) \
		tests/cli/test_cli.py tests/report tests/rl/test_checkpoint.py tests/rl/test_exported.py tests/rl/test_rsl_rl.py \
		tests/rl/test_sb3.py tests/rl/test_skrl.py tests/test_gym.py

coverage: $(VENV)/.all ## Run the whole suite and print which lines it never ran
	$(BIN)/python -m pytest -n 2 --dist loadgroup --cov --cov-report=term:skip-covered

docs: $(VENV)/.all ## Build the site into site/, strictly and without network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

LIVE_TASK = Genelab-Velocity-Flat-Unitree-Go1-v0

docs-live: $(VENV)/.all ## The same site with a Go1 on its front page that walks in the reader's browser; needs npm
	GENELAB_LIVE=live/index.html NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(BIN)/genelab export $(LIVE_TASK) pretrained --for web --out site/live
	@echo "It needs a file server: python3 -m http.server --directory site"

check: $(VENV)/.all ## Format, lint, types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.all ## Format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.all ## Measure physics, steps, training and start-up on this machine; table in logs/bench/figures.md
	$(BIN)/python -m benchmarks.figures

reference: $(VENV)/.base ## Write docs/reference-runs.md from the files of the reference runs
	$(BIN)/python -m benchmarks.reference

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) $(LOWEST) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
