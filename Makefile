# Every job in one word. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GENERATE_VENV := .venv-generate
CODE := proto operator node-agent tests
PROTO_ROOT := proto/src
PROTOS := $(shell find $(PROTO_ROOT) -name '*.proto' | sort)
# Bound in what may run anywhere; the cluster's own cache is described in tests/cluster.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## List every target
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: setup
setup: $(BIN)/.ready ## Make .venv with both programs and all tools, hash-locked
$(BIN)/.ready: requirements/dev.txt proto/pyproject.toml operator/pyproject.toml node-agent/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nodedevice needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e proto -e operator -e node-agent
	@touch $@

.PHONY: lock
lock: setup ## Resolve requirements/*.in anew into hash-locked *.txt
	@for name in agent operator dev generate go; do \
	  (cd requirements && ../$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	    --no-header --no-annotate --upgrade $$name.in -o $$name.txt); done

$(GENERATE_VENV)/.ready: requirements/generate.txt
	$(PYTHON) -m venv $(GENERATE_VENV)
	$(GENERATE_VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/generate.txt
	@touch $@

.PHONY: generate
generate: $(GENERATE_VENV)/.ready ## Regenerate gRPC stubs and the chart's copy of the CRDs
	PATH=$(GENERATE_VENV)/bin:$$PATH $(GENERATE_VENV)/bin/python -m grpc_tools.protoc -I $(PROTO_ROOT) \
	  --python_out=$(PROTO_ROOT) --mypy_out=$(PROTO_ROOT) --grpc_python_out=$(PROTO_ROOT) --mypy_grpc_out=$(PROTO_ROOT) $(PROTOS)
	@mkdir -p charts/nodedevice/crds
	cp crds/*.yaml charts/nodedevice/crds/

.PHONY: verify-generate
verify-generate: generate ## Fail when what is checked in is not what generate makes
	@git diff --exit-code --stat -- $(PROTO_ROOT) charts/nodedevice/crds && \
	  test -z "$$(git ls-files --others --exclude-standard -- $(PROTO_ROOT) charts/nodedevice/crds)" || \
	  { echo "generated files differ: run 'make generate' and commit"; exit 1; }

.PHONY: binaries
binaries: setup ## Build the control plane that tests run against, once (or KUBEBUILDER_ASSETS)
	$(BIN)/python -m tests.cluster build

.PHONY: lint
lint: setup ## Ruff: style, bugs, import order, format
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

.PHONY: format
format: setup ## Let ruff put the code in order
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

.PHONY: types
types: setup ## mypy, strict
	$(BIN)/mypy proto/src operator/src node-agent/src
	$(BIN)/mypy tests

.PHONY: imports
imports: setup ## Which way imports may point
	$(BIN)/lint-imports
