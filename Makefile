# Every target sets up what it needs, or says what is missing. `make` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VERSIONS := 3.10 4.0 4.3
CARGO ?= cargo
VERDICT := tests/scripts/verdict

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | while IFS=$$'\t' read -r target what; do printf '  make %-16s %s\n' "$$target" "$$what"; done

# A missing broker is no failure here: the demo then plays on a simulated one.
.PHONY: demo
demo: toolchain ## see rehop work on a real broker or, where there is none, on a simulated one; options in ARGS, such as ARGS=--help
	@$(if $(filter --simulated,$(ARGS)),,tests/scripts/broker ensure || echo 'demo: a simulated broker will do, unless ARGS needs a real one')
	@echo 'demo: building it, which takes about two minutes the first time'
	@$(CARGO) build --locked --quiet -p rehop-demo
	@echo 'demo: built; the scenario takes about 15 s on a broker, and less on a simulated one'
	@$(VERDICT) demo $(CARGO) run --locked --quiet -p rehop-demo -- $(ARGS)

.PHONY: test
test: toolchain broker ## run the tests on a real broker; `make faults` breaks things, and `make nightly` runs the rest
	@$(VERDICT) test tests/scripts/test

# TESTS='retry::' selects tests by name, TESTS="-E 'binary(integration)'" as `cargo nextest run` does.
TESTS ?=
.PHONY: tests
tests: toolchain broker ## run the tests that TESTS selects, such as TESTS=retry::
	@$(VERDICT) tests tests/scripts/test selected $(TESTS)

# The other tests of the page need no browser, and `make test` runs them all; without a browser it
# says what was not tried.
.PHONY: test-page
test-page: toolchain broker ## test the page of `rehop ui` in a real browser; PICTURES=1 also writes the README's pictures
	@tests/scripts/browser
	@$(VERDICT) test-page env REHOP_TEST_BROWSER=required $(if $(PICTURES),REHOP_TEST_PICTURES=1) \
		tests/scripts/test selected -E 'binary(page)'

.PHONY: toolchain
toolchain:
	@tests/scripts/toolchain

.PHONY: broker
broker: ## make sure that a RabbitMQ is available for the tests
	@tests/scripts/broker ensure

.PHONY: images
images: ## pull or build the images of all tested RabbitMQ versions
	@tests/scripts/broker images $(VERSIONS)

# The tests whose outcome depends on the broker's version: the profile `versions` in
# .config/nextest.toml names them.
.PHONY: versions
versions: toolchain images ## run the tests whose outcome depends on the broker's version against each version in VERSIONS
	@$(VERDICT) 'versions $(VERSIONS)' tests/scripts/each-version $(VERSIONS)

# SEED=7 plays only the random script of that seed, and shows what was seen; SCRIPTS=5000 plays as many for each version, from the seed FIRST on.
SEED ?=
SCRIPTS ?=
.PHONY: conformance
conformance: toolchain images ## play scripts on the simulated RabbitMQ and on each version in VERSIONS, and compare; SEED=7 repeats one
	@SEED='$(SEED)' SCRIPTS='$(SCRIPTS)' FIRST='$(FIRST)' $(VERDICT) 'conformance $(VERSIONS)' tests/scripts/conformance $(VERSIONS)

# LONG=1 runs every case, in its long form, on each version; clusters run the first one. CASES='"full"' selects cases by their sentences.
LONG ?=
CASES ?=
FAULT_VERSIONS ?= $(if $(LONG),4.3 4.0 3.10)
.PHONY: faults
faults: toolchain $(if $(FAULT_VERSIONS),fault-images,broker) ## break processes, networks and brokers, and account for each message; LONG=1 for everything
	@$(VERDICT) faults env $(if $(LONG),REHOP_FAULTS_LONG=1) REHOP_FAULTS_VERSIONS='$(FAULT_VERSIONS)' \
		$(CARGO) test --locked --workspace --test faults $(if $(LONG),--release) -- $(CASES)

.PHONY: fault-images
fault-images:
	@tests/scripts/broker images $(FAULT_VERSIONS)

# SEED=7 tells the story of one world; FIRST is the first seed of many.
WORLDS := 100000
FIRST := 0
.PHONY: worlds
worlds: toolchain ## run 100,000 worlds: whole services on a simulated broker, in virtual time, with faults; SEED=7 tells the story of one
	@$(VERDICT) worlds $(CARGO) run --locked --release --quiet -p rehop-worlds --features run -- \
		$(if $(SEED),--seed $(SEED),--worlds $(WORLDS) --first $(FIRST))

# CLIENTS='pika kombu' selects clients by name; tests/clients/program.rs has the list. What a machine does not have is not tried.
CLIENTS ?=
.PHONY: clients
clients: toolchain broker ## send messages of clients in other languages through rehop, and compare; CLIENTS='pika go' selects some
	@$(VERDICT) 'clients$(if $(CLIENTS), $(CLIENTS))' tests/scripts/clients $(CLIENTS)

# The properties of headers and decisions try about 20,000 random inputs in `make test`;
# INPUTS_FACTOR times as many are twelve million. Those of `publish` are scripts for a model of a
# broker and take longer: 120 in `make test`, MODELS_FACTOR times as many here. Each property prints
# how many it tries, and a sum below INPUTS_AT_LEAST is a failure.
INPUTS_FACTOR := 600
MODELS_FACTOR := 50
INPUTS_AT_LEAST := 10000000
.PHONY: inputs
inputs: toolchain ## run ten million random inputs through the property tests
	@$(VERDICT) inputs $(MAKE) run-inputs

.PHONY: run-inputs
run-inputs:
	REHOP_TEST_INPUTS=$(INPUTS_FACTOR) REHOP_TEST_MODELS=$(MODELS_FACTOR) $(CARGO) test --locked --release --workspace --lib 2>&1 | tests/scripts/inputs $(INPUTS_AT_LEAST)

# MUTANTS='^src/retry' selects mutants by name, SINCE=main those on lines changed since that revision.
MUTANTS ?=
.PHONY: mutants
mutants: ## change the code that decides what becomes of a delivery, one place at a time, and check that a unit test notices
	@SINCE='$(SINCE)' $(VERDICT) mutants tests/scripts/mutants $(if $(MUTANTS),'$(MUTANTS)')

# Everything that `make test` and CI leave out.
.PHONY: nightly
nightly: toolchain ## run everything that takes hours: all faults, clusters, all versions, random inputs, mutants since SINCE, features, the oldest Rust
	@$(VERDICT) nightly tests/scripts/nightly

.PHONY: bench
bench: toolchain broker ## run the throughput benchmark against raw lapin; options in ARGS
	@$(VERDICT) bench $(CARGO) run --locked --release -p rehop-bench -- $(ARGS)

.PHONY: lint
lint: toolchain ## check formatting, clippy, documentation and observability/
	@$(VERDICT) lint $(MAKE) run-lints

.PHONY: run-lints
run-lints:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
# --all-targets leaves these two out, even if they are named beside it.
	$(CARGO) clippy --locked --workspace --test faults --test clients -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --lib
	@PATH="$$(tests/scripts/promtool):$$PATH" observability/check

# DENY='bans licenses sources' leaves out the advisories, whose database comes from the network.
DENY ?= all
.PHONY: deny
deny: ## check the dependencies: licences, bans, sources and advisories
	@command -v cargo-deny >/dev/null || { echo 'make deny needs cargo-deny: cargo install cargo-deny --locked' >&2; exit 1; }
	@$(VERDICT) 'deny $(DENY)' $(CARGO) deny --workspace --all-features check --hide-inclusion-graph $(DENY)

# The newest release is the newest tag such as v0.1.0. Before there is one, BASELINE=main compares
# with a branch.
BASELINE ?= $(shell git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null)
.PHONY: semver
semver: ## compare the public API with the newest release, or with the git revision in BASELINE
	@command -v cargo-semver-checks >/dev/null || { echo 'make semver needs cargo-semver-checks: cargo install cargo-semver-checks --locked' >&2; exit 1; }
	@test -n '$(BASELINE)' || { echo 'make semver: no release has a tag yet, so name a git revision to compare with: make semver BASELINE=main' >&2; exit 1; }
	@echo 'semver: comparing the public API of the working tree with $(BASELINE), $(shell git log -1 --format='%h of %cs' '$(BASELINE)' 2>/dev/null)'
	@$(VERDICT) 'semver against $(BASELINE)' $(CARGO) semver-checks --workspace --baseline-rev '$(BASELINE)'

# The same assertions run in `make test`, on answers that are made by Jaeger's rules.
.PHONY: jaeger
jaeger: toolchain ## play the documented scenes in a real Jaeger, and compare what its API answers; REHOP_TEST_JAEGER_URL names it
	@test -n "$${REHOP_TEST_JAEGER_URL:-}" || { echo 'make jaeger needs a real Jaeger. `docker compose -f observability/compose.yaml up --wait jaeger` starts one; then set REHOP_TEST_JAEGER_URL=http://127.0.0.1:16686, the address of its page, and, unless it takes OTLP over HTTP on port 4318 of that host, REHOP_TEST_JAEGER_OTLP=http://host:port' >&2; exit 1; }
	@$(VERDICT) jaeger tests/scripts/jaeger $(CARGO)

# A service may embed the library without TLS, with its defaults, or with everything. FEATURES=all
# tries each feature of each package.
FEATURES ?= all
.PHONY: check-features
check-features: toolchain ## check that each feature of each package compiles alone
	@$(VERDICT) 'check-features $(FEATURES)' tests/scripts/check-features $(FEATURES)

.PHONY: package
package: toolchain ## check that each package can be published, in the order in which they depend on each other
	@$(VERDICT) package $(CARGO) package --locked --workspace --exclude rehop-bench --exclude rehop-demo \
		--exclude rehop-examples --exclude rehop-example-inbox --exclude rehop-tests $(if $(DIRTY),--allow-dirty)
