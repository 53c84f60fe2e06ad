# One word for everything a contributor does; `make help` lists the words.

VENV ?= .venv
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := $(VENV)/bin
LOWEST := $(abspath $(VENV))/lowest
SETUP = @test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer is needed" >&2; exit 2; }; \
	$(PYTHON) scripts/setup_env.py --venv $(VENV) --level

# Tiny models run on one thread each, so files of tests run side by side.
PARALLEL := -n auto --maxprocesses 4

UNIT := not (acceptance or slow or gpu or network or browser or soak or engines or families)
SLOW := slow and not (acceptance or gpu or network or browser or soak or engines or families)
# The real model takes every core, so these run one after the other.
ACCEPTANCE := acceptance and not (gpu or network or browser or soak or engines or families)
# Importing all test files takes longer than most of these tests.
marked = $(shell grep -rl --include='test_*.py' 'mark\.$(1)' tests)
# What depends on the versions of transformers, huggingface_hub and accelerate.
LOWEST_TESTS := tests/unit/target tests/unit/checkpoint tests/unit/builtin tests/unit/native tests/parity \
	tests/law/test_greedy.py tests/families/test_sample.py tests/families/test_folders.py

export PYTHONUNBUFFERED = 1
# The stages start Python dozens of times; what one of them compiled serves the others.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-unit test-lowest test-acceptance test-browser test-engines test-families check lint format types docs dist clean

help: ## list these words
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' $(MAKEFILE_LIST) \
	| while read -r word rest; do printf '  %-16s %s\n' "$$word" "$$rest"; done

demo: ## watch a real model answer, plain and with DFlash (sets everything up first)
	$(SETUP) runtime
	@$(BIN)/blockdraft demo

test: test-unit test-lowest test-acceptance ## unit tests, lowest versions, then the real model

test-unit: ## the fast tests (under 3 minutes)
	$(SETUP) test
	$(BIN)/python -m pytest -m "$(UNIT)" $(PARALLEL) --durations=10

test-lowest: ## the tests of targets and checkpoints on the lowest claimed versions
	$(SETUP) test
	@$(MAKE) --no-print-directory $(LOWEST)/ready
	PYTHONPATH=$(LOWEST) $(BIN)/python scripts/check_lowest.py $(LOWEST)
	PYTHONPATH=$(LOWEST) $(BIN)/python -m pytest -m "$(UNIT)" $(PARALLEL) --durations=3 -p no:cacheprovider \
		$(wildcard $(LOWEST_TESTS))

test-acceptance: ## the slow tests, then those with the real built-in model (under 10 minutes)
	$(SETUP) test
	$(BIN)/python -m pytest -m "$(SLOW)" $(PARALLEL) --dist loadfile --durations=5 $(call marked,slow)
	$(BIN)/python -m pytest -m "$(ACCEPTANCE)" --durations=10 $(call marked,acceptance)

test-browser: ## the playground in a real headless Chromium (where one is installed)
	$(SETUP) test
	$(BIN)/python -m pytest -m browser --durations=5 $(call marked,browser)

test-engines: ## our files in llama.cpp itself: the same texts, the same drafts accepted
	$(SETUP) test
	$(BIN)/python -m pytest -m "engines and not slow" --durations=5 tests/engines

test-families: ## the whole grid of target families, tiny models (about half an hour)
	$(SETUP) test
	$(BIN)/python -m pytest -m families $(PARALLEL) --durations=10 tests/families

$(LOWEST)/ready: requirements/lowest.txt requirements/constraints.txt
	@echo "setup: lowest claimed versions: downloads about 15 MB" >&2
	@rm -rf $(LOWEST)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps \
		--target $(LOWEST) -r requirements/lowest.txt
	@touch $@

check: ## ruff, format and strict types: must be silent before a commit
	$(SETUP) dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pyright --pythonpath $(BIN)/python

lint: ## ruff only
	$(SETUP) dev
	$(BIN)/ruff check .

types: ## pyright only
	$(SETUP) dev
	$(BIN)/python -m pyright --pythonpath $(BIN)/python

format: ## rewrite the files in the project's format
	$(SETUP) dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: ## rewrite the file trees and the reference of recipes in the docs
	$(SETUP) dev
	$(PYTHON) scripts/file_tree.py
	$(PYTHON) scripts/recipe_table.py
	$(BIN)/python scripts/published_table.py
	$(BIN)/python scripts/target_table.py

dist: ## sdist and wheel in dist/
	$(SETUP) dev
	@rm -rf dist build
	$(BIN)/python -m build --quiet --no-isolation

clean: ## remove the environment, the builds and every tool's cache
	rm -rf $(VENV) $(VENV).lock build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
