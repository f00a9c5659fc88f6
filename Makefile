# Every job in one word. `make help` lists the usual ones, `make help ALL=1` all. Behind a target: `## WORDS | DETAILS`, or
# `##-` where only ALL=1 shows it; DETAILS are for ALL=1.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
# plugins that end on purpose, as in many tests, would fill the screen with gRPC's own lines about it
export GRPC_VERBOSITY ?= ERROR
# types of libraries are read once for all clones: a fresh one takes 4 s instead of 28
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nodedevice/mypy
VENV := .venv
BIN := $(VENV)/bin
GENERATE_VENV := .venv-generate
MUTANTS_VENV := .venv-mutants
DOCS_VENV := .venv-docs
CODE := proto common kube operator node-agent cli charts tests hack docs
PROTO_ROOT := proto/src
PIP_INSTALL := bin/pip install --quiet --disable-pip-version-check
# what `make generate` writes into
GENERATED := $(PROTO_ROOT) crds/nodedeviceconfigs.yaml $(addprefix charts/nodedevice/,crds dashboards templates/_defaults.tpl values.schema.json config_rules.json README.md) \
  operator/src/nodedevice_operator/definitions $(addprefix cli/src/kubectl_nodedevice/,schemas.json device_records.py) \
  node-agent/src/nodedevice_agent/lib/config_rules.json docs/api.md docs/install.md docs/watch-only.md docs/settings.md docs/troubleshooting.md hack/demo/manifests
PROTOS := $(shell find $(PROTO_ROOT) -name '*.proto' | sort)

# one job after the other under `make -j`, too: `generate` rewrites what types and tests read
.NOTPARALLEL:

# Virtual environment $(1) with requirements/$(2).txt. A pip of today comes first, as the one of Python 3.11 takes twice as long; modules are
# compiled when they are imported, most never.
define make_venv
$(PYTHON) -m venv $(1)
$(1)/$(PIP_INSTALL) --require-hashes -r requirements/pip.txt
$(1)/$(PIP_INSTALL) --no-compile --require-hashes $(2:%=-r requirements/%.txt)
endef

define install_programs
$(1)/$(PIP_INSTALL) --no-deps --no-build-isolation -e proto -e common -e kube -e operator -e node-agent -e cli
endef

##@ Try it

.PHONY: help
help: ##- This list; `make help ALL=1` has every target and its variables
	@awk -v all=$(ALL) -f hack/help.awk $(MAKEFILE_LIST)

.PHONY: demo
demo: setup ## The product on a real control plane: devices from plugins to pods; under a minute | CLUSTER=current: on your cluster. GPU=dgx-h100 or mig-a100: with GPUs. GPU=shares: GPUs that pods share, and the scheduler for them. OBSERVE=1: watch only.
	@$(BIN)/python -m hack.demo $(if $(OBSERVE),observe,$(if $(filter undefined,$(origin GPU)),,$(or $(GPU),dgx-h100)))

.PHONY: up
up: setup ## Start a local cluster with agents and operator; prints what to type | CLUSTER=current: use yours. MACHINE=1: an emulated node.
	@$(BIN)/python -m tests.cluster.local up

.PHONY: down
down: setup ## Stop the local cluster
	@$(BIN)/python -m tests.cluster.local down

.PHONY: machine-shell
machine-shell: setup ##- A shell in the machine of `make up MACHINE=1`
	@$(BIN)/python -m tests.cluster.local shell

.PHONY: machine-plug
machine-plug: setup ##- Plug in the USB serial port of `make up MACHINE=1`
	@$(BIN)/python -m tests.cluster.local stick in

.PHONY: machine-unplug
machine-unplug: setup ##- Unplug the USB serial port of `make up MACHINE=1`
	@$(BIN)/python -m tests.cluster.local stick out

##@ Install and release

.PHONY: install
install: setup ## Install or upgrade on the cluster of your kubeconfig, from this clone | Builds both images, brings them to the nodes, and waits for the first NodeDevice. VALUES=file, REGISTRY, BUILDER, CONTAINERD, NAMESPACE, RELEASE, TIMEOUT. PLAN=1: print the steps only.
	@$(BIN)/python -m hack.install install --registry "$(REGISTRY)" --values "$(VALUES)" --builder "$(BUILDER)" --containerd "$(CONTAINERD)" \
	  --namespace "$(NAMESPACE)" --release "$(RELEASE)" --timeout-seconds "$(TIMEOUT)" $(if $(PLAN),--plan)

.PHONY: uninstall
uninstall: setup ## Remove it from that cluster; prints what stays | Kinds, cordons and images on the nodes stay; ALL=1 removes them. YES=1: without a question. PLAN=1: print the steps only. CONTAINERD, NAMESPACE, RELEASE.
	@$(BIN)/python -m hack.install uninstall --containerd "$(CONTAINERD)" --namespace "$(NAMESPACE)" --release "$(RELEASE)" \
	  $(if $(PLAN),--plan) $(if $(ALL),--all) $(if $(YES),--yes)

.PHONY: images
images: ## Build the images of agent and operator with docker, podman or buildah | For this architecture. BUILDER, BASE, TAG. `make release` needs no builder.
	@for builder in $(or $(BUILDER),docker podman buildah); do $$builder info >/dev/null 2>&1 && break || builder=; done; \
	test -n "$$builder" || { echo "no image builder answers here: start docker, or install podman or buildah (BUILDER= names another);"; \
	  echo "make release VERSION=0.1.0 needs none: it makes both images, for amd64 and arm64, as archives in dist/ (docs/releasing.md)"; exit 1; } >&2; \
	for program in operator node-agent; do \
	  name=nodedevice-$${program#node-}:$(or $(TAG),latest); echo "$$builder: $$name"; \
	  $$builder build --quiet $(if $(BASE),--build-arg BASE=$(BASE)) -f $$program/Dockerfile -t $$name . ; done

.PHONY: cli
cli: setup ## kubectl nodedevice as one file: build/kubectl-nodedevice.pyz | For any Python from 3.11 on.
	@$(BIN)/python -m hack.release.zipapp

PUBLISH = $(BIN)/python -m hack.publish "$(REGISTRY)" --index "$(INDEX)" --index-check "$(INDEX_CHECK)" \
  $(if $(KEY),--key "$(KEY)") $(if $(UNSIGNED),--unsigned)

.PHONY: release
release: setup ## Build everything that is published from the commit into dist/ (VERSION=0.1.0) | Wheels, images, chart, SBOMs, sums, notes. REGISTRY=registry.example.com/team, SOURCE=https://…
	@$(if $(filter publish,$(MAKECMDGOALS)),$(PUBLISH) --check)
	@$(BIN)/python -m hack.release "$(VERSION)" --registry "$(REGISTRY)" --source "$(SOURCE)"

.PHONY: publish
publish: setup ## Publish dist/ to a registry and a package index, signed | REGISTRY, INDEX, INDEX_CHECK, KEY or UNSIGNED=1.
	@$(PUBLISH)

##@ Develop

.PHONY: setup
setup: $(BIN)/.ready ## Create .venv with the programs and all tools, hash-locked
$(BIN)/.ready: requirements/pip.txt requirements/dev.txt proto/pyproject.toml common/pyproject.toml kube/pyproject.toml operator/pyproject.toml node-agent/pyproject.toml \
  cli/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nodedevice needs Python 3.11 or newer; set PYTHON=")'
	$(call make_venv,$(VENV),dev)
	$(call install_programs,$(VENV))
	@touch $@

.PHONY: binaries
binaries: setup ## Download or build the control plane that tests use, once | BINARIES=build or download; or KUBEBUILDER_ASSETS.
	$(BIN)/python -m tests.cluster build

.PHONY: lint
lint: setup ## Ruff: style, bugs, import order, format
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

.PHONY: format
format: setup ## Format the code and fix what ruff can fix
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

.PHONY: types
types: setup ## mypy, strict
	$(BIN)/mypy proto/src common/src kube/src operator/src node-agent/src cli/src
	$(BIN)/mypy charts tests hack docs

.PHONY: imports
imports: setup ## Import contracts: layers, independence, pure files
	$(BIN)/lint-imports

.PHONY: lock
lock: setup ##- Update the hash-locked requirements/*.txt from *.in
	@for name in agent cli operator dev docs generate go mutants pip; do \
	  (cd requirements && ../$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	    --no-header --no-annotate --upgrade $$name.in -o $$name.txt); done

$(GENERATE_VENV)/.ready: requirements/pip.txt requirements/generate.txt
	$(call make_venv,$(GENERATE_VENV),generate)
	@touch $@

.PHONY: generate
generate: setup $(GENERATE_VENV)/.ready ## Regenerate gRPC stubs, schemas, copies of the CRDs, tables of the pages
	PATH=$(GENERATE_VENV)/bin:$$PATH $(GENERATE_VENV)/bin/python -m grpc_tools.protoc -I $(PROTO_ROOT) \
	  --python_out=$(PROTO_ROOT) --mypy_out=$(PROTO_ROOT) --grpc_python_out=$(PROTO_ROOT) --mypy_grpc_out=$(PROTO_ROOT) $(PROTOS)
	$(BIN)/python -m charts.generate_config_schema
	$(BIN)/python charts/copy_crds.py
	$(BIN)/python -m charts.generate_schema
	$(BIN)/python -m charts.generate_config_rules
	$(BIN)/python -m charts.generate_defaults
	$(BIN)/python -m charts.generate_cli_records
	$(BIN)/python -m charts.generate_values_table
	$(BIN)/python -m docs.generate_api
	$(BIN)/python -m docs.generate_offered_twice
	$(BIN)/python -m docs.generate_reasons
	$(BIN)/python -m docs.generate_settings
	$(BIN)/python -m docs.generate_tried_nodes
	$(BIN)/python -m charts.dashboards
	$(BIN)/python -m hack.demo.rendered_chart

.PHONY: verify-generate
verify-generate: generate ##- Fail when generated files are not up to date
	@git diff --exit-code --stat -- $(GENERATED) && \
	  test -z "$$(git ls-files --others --exclude-standard -- $(GENERATED))" || \
	  { echo "generated files differ: run 'make generate' and commit"; exit 1; }

$(DOCS_VENV)/.ready: requirements/pip.txt requirements/docs.txt
	$(call make_venv,$(DOCS_VENV),docs)
	@touch $@

.PHONY: docs
docs: $(DOCS_VENV)/.ready ## The pages as a site in build/site; a broken link or anchor is an error
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build

.PHONY: transcripts
transcripts: setup ##- Regenerate the transcripts in docs/operations.md on a real control plane | Two minutes.
	@$(BIN)/python -m docs.generate_transcripts

.PHONY: pictures
pictures: setup ##- Photograph the page for README from a real run, into docs/pictures | A minute; needs Chromium.
	@$(BIN)/python -m hack.pictures

.PHONY: workflows
workflows: setup ##- Check .github/workflows with actionlint, built once
	@$(BIN)/python -m hack.release.workflows

.PHONY: fake-nvml
fake-nvml: setup ##- Build the NVML library that tests and the demo use; prints its path
	@$(BIN)/python -m hack.fake_nvml.library

.PHONY: clean
clean: ## Remove build outputs and .venv; binaries stay in the cache folder
	rm -rf $(VENV) $(GENERATE_VENV) $(MUTANTS_VENV) $(DOCS_VENV) build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

##@ Test

.PHONY: unit
unit: setup ## Fast tests, without a control plane; two minutes
	$(BIN)/pytest -q -m "not cluster" tests/unit tests/conformance

# The tests of a lane are in hack/ci/parts.toml; lanes run side by side, as most of a test is waiting.
.PHONY: test
test: lint imports verify-generate ## The gate, which each change has to pass; five minutes, no root | Lint, types, imports, generated files, unit tests, the main paths on a control plane, the chart. REAL_NODE=1: and six tests on a real node, as root.
	@$(BIN)/python -m hack.ci gate

.PHONY: part
part: setup ## One part of the other tests, five minutes (PART="agent chart") | Without PART: the part whose turn it is. `.venv/bin/python -m hack.ci list` lists the parts.
	@$(BIN)/python -m hack.ci part $(PART)

.PHONY: everything
everything: lint imports verify-generate ## All tests; an hour and a half, as root | The gate, each part, and all tests of emulated machines. Continues an interrupted run of the same tree.
	@$(BIN)/python -m hack.ci everything

.PHONY: releases
releases: setup ##- The main paths on each supported release of Kubernetes | Built once. RELEASES="1.34.4 1.36.3". As root on a real node as well. Continues an interrupted run of the same tree.
	@$(BIN)/python -m hack.ci releases $(RELEASES)

.PHONY: flaky
flaky: setup ##- As root: the gate on a machine that stalls | Frozen 12 s every two minutes, twice with half the CPU and once with a quarter; half an hour. Continues an interrupted run.
	@$(BIN)/python -m hack.ci.flaky

.PHONY: conformance
conformance: setup ## The kubelet's own device manager and ours, compared | Random sequences, named cases, rows of its behaviour that tests show. ORACLE_SEQUENCES.
	ORACLE_SEQUENCES=$${ORACLE_SEQUENCES:-2400} $(BIN)/pytest -q --kubelet-rows tests/conformance tests/unit tests/integration

.PHONY: chart
chart: setup ##- The chart: lint, invalid values, every manifest on a real API server, hooks
	$(BIN)/pytest --durations=25 tests/chart

.PHONY: dashboards
dashboards: setup ##- Dashboards and alerts in a real Prometheus that scrapes the real programs
	$(BIN)/pytest -q tests/monitoring

.PHONY: e2e
e2e: setup ## As root: pods on a real node, `helm install`, `make install`, a release | E2E_ROUNDS. RECORD=1: into the table of nodes. E2E_REQUIRED=1: no skips.
	@$(BIN)/python -m hack.ci part real-node-answers real-node-devices real-node-dra real-node-faults real-node-gpus real-node-origins real-node-restarts install from-clone upgrade release

.PHONY: dra
dra: setup ##- As root: a real node with a DRA driver, the kubelet's plugin and ours | Pods start and end, two hundred times at random. DRA_CHANGES, DRA_SEED.
	DRA_CHANGES=$${DRA_CHANGES:-200} $(BIN)/pytest -q tests/e2e/real_node/dra/test_random_pods.py

# Below unshare: machines, and the control plane with them, have a network of their own. One after the other: beside a second emulator on two
# cores a test takes more than twice as long.
.PHONY: e2e-machine
e2e-machine: setup ## As root: emulated nodes with systemd, cgroup v2, hot-plug, resets | MACHINE_TESTS. RECORD=1: into the table of nodes. MACHINE_REQUIRED=1: no skips.
	$(BIN)/python -m hack.machine $(if $(MACHINE_TESTS),,trixie)
	unshare --net env E2E_REQUIRED=$(MACHINE_REQUIRED) $(BIN)/pytest -q --durations=25 tests/e2e/machine $(if $(MACHINE_TESTS),-k '$(MACHINE_TESTS)')

.PHONY: crash
crash: setup ##- kill -9 of agent and plugins at random points under load; leaks; a random host | CRASH_POINTS, PART_STEPS, LEAK_CYCLES, HOST_STEPS.
	CRASH_POINTS=$${CRASH_POINTS:-200} PART_STEPS=$${PART_STEPS:-10000} LEAK_CYCLES=$${LEAK_CYCLES:-10000} HOST_STEPS=$${HOST_STEPS:-100000} \
	  $(BIN)/pytest -q tests/robustness/crash tests/robustness/host

.PHONY: faults
faults: setup ##- Let each system call of agent, operator and extender fail while they run | With each fitting error, once and for 3 s. FAULTS_SHARE, FAULTS_SEED, FAULTS_ONLY.
	FAULTS_SHARE=$${FAULTS_SHARE:-1} $(BIN)/pytest -q -s tests/robustness/faults

.PHONY: fuzz
fuzz: setup ##- Feed the agent malformed input wherever it reads, for a minute | FUZZ_SECONDS, FUZZ_SEED.
	FUZZ_SECONDS=$${FUZZ_SECONDS:-60} $(BIN)/pytest -q tests/robustness/fuzz

.PHONY: chaos
chaos: setup ##- Kill, pause, disconnect and contradict everything; check the capacity | CHAOS_SECONDS, CHAOS_SEED, CHAOS_MAD_SECONDS.
	CHAOS_SECONDS=$${CHAOS_SECONDS:-120} CHAOS_MAD_SECONDS=$${CHAOS_MAD_SECONDS:-120} $(BIN)/pytest -q -s tests/robustness/chaos

$(MUTANTS_VENV)/.ready: requirements/pip.txt requirements/mutants.txt requirements/dev.txt
	$(call make_venv,$(MUTANTS_VENV),dev mutants)
	$(call install_programs,$(MUTANTS_VENV))
	@touch $@

.PHONY: mutants
mutants: $(MUTANTS_VENV)/.ready ##- Change the code in one place at a time: does a unit test fail? | An hour or more; resumable. SINCE=<commit>: only functions changed since. MUTANTS, MUTANTS_SEED: how many, and which.
	nice -n 19 $(MUTANTS_VENV)/bin/python -m hack.mutants $(if $(SINCE),--since "$(SINCE)" $(if $(MUTANTS),--count $(MUTANTS)),--count $(or $(MUTANTS),500)) \
	  --seed $(or $(MUTANTS_SEED),1)

.PHONY: seeds
seeds: setup ##- Each random test with SEEDS seeds, 20 by default; names those that fail | SEED: the first one. ONLY: test files or folders.
	@$(BIN)/python -m hack.ci.seeds

.PHONY: scheduling
scheduling: setup ##- 10,000 pods with parts on 20 nodes, with and without the extender | Writes build/scheduling.json. SCHEDULING_PODS.
	@$(BIN)/python -m hack.scheduling

.PHONY: why
why: setup ##- `kubectl nodedevice why` in 100 random situations on a control plane | WHY_SITUATIONS, WHY_SEED.
	WHY_SITUATIONS=$(or $(WHY_SITUATIONS),100) $(BIN)/python -m pytest -q -s tests/integration/why/test_situations.py

.PHONY: gpu-check
gpu-check: setup ##- Compare this machine's NVML with the fake one: table, build/gpu-check.json
	@$(BIN)/python -m hack.gpu_check

##@ Measure

COMPARED = $(if $(AGAINST),--against "$(AGAINST)" --rounds $(or $(ROUNDS),3))

.PHONY: bench
bench: setup ## Measure the budgets of docs/performance.md; writes build/bench.json | AGAINST=<commit> ROUNDS=3: both trees in turn instead, compared by medians.
	$(BIN)/python -m hack.bench $(COMPARED) $(if $(OWN_BENCH),--own-bench)
	$(if $(AGAINST),,BENCH_PODS=1 $(BIN)/python -m hack.bench.extender.bench --rounds 1)

.PHONY: bench-operator
bench-operator: setup ##- The operator at 500 to 5,000 nodes: table, build/bench-operator.json, plots | BENCH_NODES, BENCH_SECONDS.
	$(BIN)/python -m hack.bench.operator.bench

.PHONY: bench-token
bench-token: setup ##- 20,000 NodeDevices by one node's token: the cost to other nodes' capacity | Writes build/bench-token.json. BENCH_NODES, BENCH_OBJECTS.
	$(BIN)/python -m hack.bench.operator.mad_token

.PHONY: bench-extender
bench-extender: setup ##- The extender's verbs and pods per second at 200 and 5,000 nodes: table, build/bench-extender.json | BENCH_NODES, BENCH_PODS, BENCH_BURST, BENCH_ONLY=<verbs or pods>, ROUNDS=5. AGAINST=<commit>: its extender too, in the same rounds.
	$(BIN)/python -m hack.bench.extender.bench --rounds $(or $(ROUNDS),5) $(if $(AGAINST),--against "$(AGAINST)")

.PHONY: bench-cli
bench-cli: setup ##- kubectl nodedevice at 100 and 5,000 nodes: table, build/bench-cli.json | BENCH_NODES. AGAINST=<commit> ROUNDS=3: its command too, in the same cluster.
	$(BIN)/python -m hack.bench.cli $(COMPARED)

.PHONY: bench-configs
bench-configs: setup ##- 5,000 agents that watch NodeDeviceConfigs: the API server's cost | Writes build/bench-configs.json. BENCH_NODES.
	$(BIN)/python -m hack.bench.configs

.PHONY: bench-pods
bench-pods: setup ##- 5,000 agents that list the pods of their nodes: the API server's CPU | Writes build/bench-pods.json. BENCH_NODES, BENCH_PODS.
	$(BIN)/python -m hack.bench.pods

.PHONY: bench-plugins
bench-plugins: setup ##- 255 plugins of 1,000 devices end at once: table, build/bench-plugins.json | BENCH_PLUGINS, BENCH_DEVICES.
	$(BIN)/python -m hack.bench.plugins_gone

.PHONY: bench-hostile
bench-hostile: setup ##- Plugins that list without end: starts of containers, memory afterwards | Writes build/bench-hostile.json.
	$(BIN)/python -m hack.bench.hostile_lists

.PHONY: bench-node
bench-node: setup ##- As root: what the agent costs a real node: table, build/bench-node.json
	$(BIN)/python -m hack.bench.node.bench

.PHONY: bench-dra
bench-dra: setup ##- As root: what observing a DRA driver costs: table, build/bench-dra.json | BENCH_SECONDS.
	$(BIN)/python -m hack.bench.node.dra

.PHONY: walks
walks: setup ##- Trace three walks through the programs: files entered; build/walks.json | ROOT: another tree.
	@$(BIN)/python -m hack.measure.walks $(if $(ROOT),--root $(ROOT))

.PHONY: measure
measure: setup ## Size and shape of folders, files, functions; build/measure.json | ROOT: another tree.
	@$(BIN)/python -m hack.measure.tree $(if $(ROOT),--root $(ROOT))
