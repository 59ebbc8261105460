PYTHON ?= python3
BIN := .venv/bin
SGLANG := .venv-sglang/bin

.PHONY: help tune test lint format install-check sglang-cpu test-sglang clean

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

tune: .venv/installed ## install into .venv and tune the built-in A100 profile
	$(BIN)/trmodel tune --profile a100.json --N 4..16

test: .venv/installed-dev ## install what the tests need and run them
	$(BIN)/python -m pytest -n auto

lint: .venv/installed-dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed-dev ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install-check: ## install the package as a user would, elsewhere, and tune with it
	rm -rf build/install-check
	$(PYTHON) -m venv build/install-check
	build/install-check/bin/pip install --quiet .
	cd build && install-check/bin/trmodel tune --profile a100.json --N 4..16
	! build/install-check/bin/pip list 2>/dev/null | grep -iE '^(torch|sglang) '

sglang-cpu: .venv-sglang/installed ## install SGLang for the CPU into .venv-sglang

test-sglang: .venv-sglang/installed ## run the tests that need SGLang, on the CPU
	$(SGLANG)/python -m pytest tests_sglang -n 2 --dist loadfile -o tmp_path_retention_count=1

clean: ## remove what was made here
	rm -rf .venv .venv-sglang build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ .venv/installed

# The releases that SGLang pins for GPUs are met in part, on purpose: pip is not asked again.
.venv-sglang/installed: pyproject.toml requirements/sglang-cpu.txt requirements/sglang-cpu-alone.txt
	$(PYTHON) -m venv .venv-sglang
	$(SGLANG)/pip install --quiet --requirement requirements/sglang-cpu.txt --editable '.[sglang-test]'
	$(SGLANG)/pip install --quiet --no-deps --requirement requirements/sglang-cpu-alone.txt
	touch $@
