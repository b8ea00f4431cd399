# `make` lists the targets. Steps that take long say so on stderr.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PYTHON := $(BIN)/python
SETUP := .venv/.installed
UV_VERSION := 0.13.8
CYCLONEDX_VERSION := 7.5.0
PIP_AUDIT_VERSION := 2.10.1
PYTEST := $(PYTHON) -m pytest
# Tests on real control planes mostly wait. The group with the real nodes goes first, as the longest.
SIDE_BY_SIDE := $(PYTEST) --numprocesses 2 --dist loadfile --no-loadscope-reorder

# Folders mypy and ruff read. operator/ itself is no package: it would shadow the standard library's.
TYPED := operator/railwright_api operator/railwright_cli operator/railwright_controllers \
	operator/railwright_operator operator/railwright_process operator/railwright_watch \
	operator/railwright_conversion operator/railwright_kube operator/railwright_mapper \
	scheduler/railwright_scheduler topology/railwright_agent topology/railwright_topology \
	worker/railwright $(wildcard testbed/railwright_*) tests

say = @echo "== $(1)" >&2

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(SETUP) ## install the locked Python packages into .venv

$(SETUP): pyproject.toml requirements.lock
	$(call say,installing Python packages into .venv (torch is large: minutes the first time))
	@python=$$(for name in python3.11 python3.12 python3.13 python3; do \
		"$$name" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' \
			2>/dev/null && { echo "$$name"; break; }; done || true); \
	if [ ! -x $(PYTHON) ]; then \
		if [ -z "$$python" ]; then \
			echo "Railwright needs Python 3.11, 3.12 or 3.13 with its venv module; found: \
	$$(python3 --version 2>&1 || echo none). Install python3.11 and python3.11-venv." >&2; exit 1; \
		fi; \
		"$$python" -m venv .venv; \
	fi
	@[ -x $(BIN)/uv ] || $(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r images/build.lock
	@VIRTUAL_ENV=.venv $(BIN)/uv pip install --require-hashes --compile-bytecode -r requirements.lock \
		</dev/null >&2
	@VIRTUAL_ENV=.venv $(BIN)/uv pip install --no-deps --no-build-isolation --editable . </dev/null >&2
	@touch $@

.PHONY: lock
lock: ## resolve pyproject.toml into requirements.lock and the locks of the images again
	@[ -x $(BIN)/uv ] || $(MAKE) setup
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
		--generate-hashes --custom-compile-command "make lock" --output-file requirements.lock --quiet
	printf 'hatchling\nuv==$(UV_VERSION)\n' | $(BIN)/uv pip compile - --universal \
		--python-version 3.11 --constraints requirements.lock --generate-hashes \
		--custom-compile-command "make lock" --output-file images/build.lock --quiet
	echo 'cyclonedx-bom==$(CYCLONEDX_VERSION)' | $(BIN)/uv pip compile - --universal \
		--python-version 3.11 --generate-hashes --custom-compile-command "make lock" \
		--output-file images/sbom.lock --quiet
	echo 'pip-audit==$(PIP_AUDIT_VERSION)' | $(BIN)/uv pip compile - --universal \
		--python-version 3.11 --generate-hashes --custom-compile-command "make lock" \
		--output-file images/audit.lock --quiet
	for extra in agent operator; do \
		$(BIN)/uv pip compile pyproject.toml --extra $$extra --universal --python-version 3.11 \
			--constraints requirements.lock --generate-hashes --custom-compile-command "make lock" \
			--output-file images/$$extra.lock --quiet; \
	done

.PHONY: check
check: lint types ## before every commit: lint, types, architecture, unit and property tests; < 2 min
	$(call say,architecture, unit and property tests, these with a third of their examples)
	@RAILWRIGHT_EXAMPLES_PERCENT=33 $(PYTEST) --numprocesses 2 tests/architecture tests/unit tests/property

.PHONY: lint
lint: $(SETUP) ## ruff: rules and format
	$(call say,ruff)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { $(BIN)/ruff format --diff --quiet .; exit 1; }

.PHONY: types
types: $(SETUP) ## mypy, strict, on everything
	$(call say,mypy)
	@$(BIN)/mypy --no-error-summary $(TYPED)

.PHONY: test
test: lint types binaries ## lint, types and all tests, with real control planes and nodes
	$(call say,all tests)
	@$(PYTEST) --numprocesses 2 tests/architecture tests/unit tests/property tests/simulation
	@$(PYTEST) -m alone tests/e2e tests/integration
	@$(SIDE_BY_SIDE) -m "not alone" tests/e2e tests/integration

.PHONY: architecture
architecture: $(SETUP) ## architecture tests alone: the rules of the code
	@$(PYTEST) tests/architecture

.PHONY: code-report
code-report: $(SETUP) ## size and names of the code, as one JSON object
	@cd tests && ../$(PYTHON) -m architecture.code_report

.PHONY: unit
unit: $(SETUP) ## unit tests alone
	@$(PYTEST) tests/unit

.PHONY: property
property: $(SETUP) ## property tests alone
	@$(PYTEST) tests/property

.PHONY: simulation
simulation: $(SETUP) ## the operator in simulated time
	@$(PYTEST) tests/simulation

.PHONY: soak
soak: binaries ## generated objects on an API server, the operator in simulated time for a million requests; 60 minutes
	@cd tests && ../$(PYTHON) -m fixtures.generated_report --accepted 10000
	@cd tests && ../$(PYTHON) -m simulation.soak

.PHONY: mutants
mutants: $(SETUP) ## plant each mutant in the code: a named test or a simulated run must fail; minutes
	@cd tests && ../$(PYTHON) -m simulation.mutants

.PHONY: integration
integration: binaries ## tests against a real control plane with simulated nodes
	@$(PYTEST) -m alone tests/integration
	@$(SIDE_BY_SIDE) -m "not alone" tests/integration

.PHONY: test-failpoints
test-failpoints: binaries ## the operator and the controllers killed at every failpoint
	@RAILWRIGHT_ALL_FAILPOINTS=1 $(PYTEST) tests/integration/test_operator_failpoints.py \
		tests/integration/test_controllers_killed.py

.PHONY: test-outage
test-outage: binaries ## the operator through ten minutes without an API server
	@RAILWRIGHT_OUTAGE_S=600 $(PYTEST) tests/integration/test_operator_running.py -k without_an_api_server

.PHONY: e2e
e2e: binaries ## tests with real nodes, pods and processes; needs root on Linux
	@$(PYTEST) tests/e2e

.PHONY: binaries
binaries: $(SETUP) ## build or find etcd, kube-apiserver and the other programs of the testbed
	$(call say,programs of the testbed (built once, about 6 minutes; then cached))
	@$(PYTHON) -m railwright_testbed build >&2

.PHONY: generate
generate: $(SETUP) ## write crds/, dashboards/, docs/reference/, docs/cli.md and docs/metrics.md
	@$(PYTHON) -m railwright_testbed.crds crds
	@cd tests && ../$(PYTHON) -m architecture.metrics_page
	@cd tests && ../$(PYTHON) -m architecture.cli_page
	@cd tests && ../$(PYTHON) -m architecture.reference_pages
	@$(PYTHON) -m railwright_dashboards.generate

.PHONY: docs
docs: $(SETUP) ## build the documentation site into build/site; broken links and unlisted pages fail
	$(call say,documentation site)
	@cd tests && ../$(PYTHON) -m architecture.site ../build/docs
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --quiet --strict
	@echo build/site/index.html

.PHONY: sbom
sbom: $(SETUP) ## bills of materials of the images, with licences (CycloneDX), into build/sbom
	@$(BIN)/uv venv --quiet --clear --python $(PYTHON) build/sbom/cyclonedx
	@VIRTUAL_ENV=build/sbom/cyclonedx $(BIN)/uv pip install --quiet --require-hashes -r images/sbom.lock
	@for extra in agent operator; do \
		folder=build/sbom/$$extra; \
		$(BIN)/uv venv --quiet --clear --python $(PYTHON) $$folder && \
		VIRTUAL_ENV=$$folder $(BIN)/uv pip install --quiet --require-hashes -r images/$$extra.lock && \
		build/sbom/cyclonedx/bin/cyclonedx-py environment $$folder --gather-license-texts \
			--output-file $$folder.cdx.json && \
		rm -r $$folder && ls $$folder.cdx.json || exit; \
	done

.PHONY: audit
audit: $(SETUP) ## known vulnerabilities of all locked packages, by the OSV database; needs the internet, or OSV=URL
	@$(BIN)/uv venv --quiet --clear --python $(PYTHON) build/audit
	@VIRTUAL_ENV=build/audit $(BIN)/uv pip install --quiet --require-hashes -r images/audit.lock
	@failed=0; for lock in requirements.lock $(wildcard images/*.lock); do \
		echo $$lock; build/audit/bin/pip-audit --disable-pip --no-deps --progress-spinner off \
			--vulnerability-service osv $(if $(OSV),--osv-url '$(OSV)') --requirement $$lock || failed=1; \
	done; exit $$failed

# A KUBECONFIG of the environment is not meant for the demo.
OWN_CLUSTER = $(if $(findstring command,$(origin KUBECONFIG)),--kubeconfig '$(KUBECONFIG)' \
	--image '$(IMAGE)' --train-image '$(TRAIN_IMAGE)' --storage-class '$(STORAGE_CLASS)' \
	$(if $(YES),--yes))

.PHONY: demo
demo: $(SETUP) ## a job loses a node and resumes, on a real Kubernetes on this machine; needs root. Or: make demo KUBECONFIG=...
	@$(PYTHON) -m railwright_demo $(OWN_CLUSTER)

.PHONY: demo-simulated
demo-simulated: $(SETUP) ## the same scenario on simulated nodes; needs no root
	@$(PYTHON) -m railwright_demo --simulated

.PHONY: observe
observe: binaries ## jobs with faults on a real Kubernetes, with the dashboards on a local page; needs root
	@$(PYTHON) -m railwright_observe

.PHONY: pictures
pictures: binaries ## the same, then write docs/pictures; about 10 minutes, needs root
	@$(PYTHON) -m railwright_observe --pictures docs/pictures

.PHONY: cluster
cluster: $(SETUP) ## start a Kubernetes with Railwright on this machine, and print how to use it; needs root
	@$(PYTHON) -m railwright_testbed up

.PHONY: cluster-down
cluster-down: $(SETUP) ## remove that Kubernetes
	@$(PYTHON) -m railwright_testbed down

.PHONY: bench-decide
bench-decide: $(SETUP) ## CPU time of one decision, as one JSON object on stdout
	@$(PYTHON) tests/bench/bench_decide.py

.PHONY: bench-planning
bench-planning: $(SETUP) ## counted work and CPU time of planning one job at the bounds of its schema; minutes
	$(call say,counted work and CPU time of generated jobs)
	@cd tests && ../$(PYTHON) -m bench.bench_planning

.PHONY: bench-discovery
bench-discovery: $(SETUP) ## discovery from every kind of source, with planted errors, and probes; minutes, needs root
	@cd tests && ../$(PYTHON) -m bench.bench_discovery

.PHONY: bench-model
bench-model: $(SETUP) ## errors of the cost model on published runs, as one JSON object
	@$(PYTHON) tests/bench/bench_model.py

.PHONY: bench-profile
bench-profile: $(SETUP) ## bytes that real trainings send, derived and recorded; about 2 minutes
	@cd tests && ../$(PYTHON) -m bench.bench_profile

.PHONY: bench-reference
bench-reference: $(SETUP) ## predictions of a published cluster, with its published figures, as one JSON object
	@cd tests && ../$(PYTHON) -m bench.bench_reference

.PHONY: bench-remap
bench-remap: $(SETUP) ## real steps in network namespaces: random, network's order, mapped; minutes, needs root
	@cd tests && ../$(PYTHON) -m bench.bench_remap

.PHONY: bench-gang
bench-gang: binaries ## time until gangs run, compared with a plain client; about 10 minutes
	@cd tests && ../$(PYTHON) -m bench.bench_gang

.PHONY: bench-scale
bench-scale: binaries ## memory, restart and idle load at 5,000 nodes and 50,000 pods; 20 to 45 minutes
	@cd tests && ../$(PYTHON) -m bench.bench_scale

.PHONY: check-docs
check-docs: binaries ## every command and YAML block of the pages, on real nodes; about 15 minutes, needs root
	@cd tests && ../$(PYTHON) -m bench.check_docs

.PHONY: bench-cli
bench-cli: binaries ## commands compared with kubectl get tj, 10,000 jobs on 5,000 nodes; about 10 minutes
	@cd tests && ../$(PYTHON) -m bench.bench_cli

.PHONY: bench-install
bench-install: binaries ## from nothing to a job's first step with the chart, and back; about 4 minutes, needs root
	@cd tests && ../$(PYTHON) -m bench.bench_install

.PHONY: check-observability
check-observability: binaries ## every query and alert in a real Prometheus, and series with 100,000 jobs; a minute
	@cd tests && ../$(PYTHON) -m bench.check_observability

.PHONY: check-cert-manager
check-cert-manager: binaries ## the real cert-manager makes and renews the authorities of the servers; about 10 minutes, needs root
	@cd tests && ../$(PYTHON) -m bench.check_authorities

.PHONY: bench-bulk
bench-bulk: binaries ## a take-over with 1,000 large jobs, and the loss of 2,000 attempts at once
	@cd tests && ../$(PYTHON) -m bench.bench_bulk

.PHONY: bench-kopf
bench-kopf: binaries ## CPU of an index of kopf, by the number of objects; 3 minutes
	@cd tests && ../$(PYTHON) -m bench.bench_kopf

.PHONY: bench-isolation
bench-isolation: binaries ## how long a fault in one process delays the jobs of others; 20 minutes
	@cd tests && ../$(PYTHON) -m bench.bench_isolation

.PHONY: bench-controllers
bench-controllers: binaries ## memory of the controllers with 5,000 agents, and how soon a new rack label counts; 15 minutes
	@cd tests && ../$(PYTHON) -m bench.bench_controllers

.PHONY: bench-heartbeats
bench-heartbeats: $(SETUP) ## CPU of heartbeats, failover and floods of connections; 4 minutes
	@cd tests && ../$(PYTHON) -m bench.bench_heartbeats

.PHONY: bench-mapping
bench-mapping: $(SETUP) ## mappings compared with Scotch and others, by distance and step time; about 12 minutes
	@cd tests && ../$(PYTHON) -m bench.bench_mapping

.PHONY: clean
clean: ## remove build outputs, not the shared caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
