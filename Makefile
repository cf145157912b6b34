# Every target sets up what it needs and reports it. `make` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VERSIONS := 3.10 4.0 4.3
FEATURES := tls-ring tls-aws-lc otlp monitoring doctor ui anyhow eyre tower testing cli
CARGO ?= cargo
VERDICT := tests/scripts/verdict

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | while IFS=$$'\t' read -r target what; do printf '  make %-16s %s\n' "$$target" "$$what"; done

.PHONY: demo
demo: broker ## see rehop work on a real broker, in about a minute; options in ARGS, such as ARGS=--help
	@$(VERDICT) demo $(CARGO) run --release --features cli --example demo -- $(ARGS)

.PHONY: test
test: broker ## run all tests on a real broker
	@$(VERDICT) test $(MAKE) run-tests

# Plain `cargo test`, which also runs the examples in the documentation.
.PHONY: run-tests
run-tests:
	$(CARGO) test --features cli

# The other tests of the page need no browser, and `make test` runs them all; without a browser it says what was not tried.
.PHONY: test-page
test-page: broker ## test the page of `rehop ui` in a real browser; PICTURES=1 also writes the README's pictures
	@tests/scripts/browser
	@$(VERDICT) test-page env REHOP_TEST_BROWSER=required $(if $(PICTURES),REHOP_TEST_PICTURES=1) \
		$(CARGO) test --features cli --test page

.PHONY: broker
broker: ## make sure that a RabbitMQ is available for the tests
	@tests/scripts/broker ensure

.PHONY: images
images: ## pull or build the images of all tested RabbitMQ versions
	@tests/scripts/broker images $(VERSIONS)

# Selects among the tests in tests/, as for `cargo test`; `--test suite integration::` takes a quarter of the time.
VERSION_TESTS := --test '*'
.PHONY: versions
versions: images ## run the tests against each RabbitMQ version
	@$(VERDICT) 'versions $(VERSIONS)' $(MAKE) $(VERSIONS:%=on-%)

# The unit tests and the documentation do not depend on the broker's version, so only `make test` runs them.
.PHONY: $(VERSIONS:%=on-%)
$(VERSIONS:%=on-%): on-%:
	@echo "versions: RabbitMQ $*"
	REHOP_TEST_RABBITMQ_TAG=$*-management $(CARGO) test --features cli $(VERSION_TESTS)

# Clusters run the first version. `make faults FAULT_VERSIONS=` uses the one broker that `make broker` finds.
FAULT_VERSIONS ?= 4.3 4.0 3.10
.PHONY: faults
faults: $(if $(FAULT_VERSIONS),fault-images,broker) ## run the whole fault suite on each RabbitMQ version
	@$(VERDICT) faults $(MAKE) run-faults

# The properties come first, because they need no broker.
.PHONY: run-faults
run-faults: run-inputs
	REHOP_FAULTS_LONG=1 REHOP_FAULTS_VERSIONS='$(FAULT_VERSIONS)' $(CARGO) test --release --features cli --test faults

# The properties of headers and decisions try about 20,000 random inputs in `make test`; INPUTS_FACTOR times as many are twelve
# million. The inputs of the inbox and the outbox are whole simulated worlds and take longer: 560 in `make test`, WORLDS_FACTOR
# times as many here. Each property prints how many it tries, and a sum below INPUTS_AT_LEAST is a failure.
INPUTS_FACTOR := 600
WORLDS_FACTOR := 50
INPUTS_AT_LEAST := 10000000
.PHONY: inputs
inputs: ## run ten million random inputs through the property tests; part of `make faults`
	@$(VERDICT) inputs $(MAKE) run-inputs

.PHONY: run-inputs
run-inputs:
	REHOP_TEST_INPUTS=$(INPUTS_FACTOR) REHOP_TEST_WORLDS=$(WORLDS_FACTOR) $(CARGO) test --release --features cli --lib 2>&1 | tests/scripts/inputs $(INPUTS_AT_LEAST)

# MUTANTS='^src/retry' selects mutants by name, SINCE=main those on lines changed since that revision.
MUTANTS ?=
.PHONY: mutants
mutants: ## change the code that decides what becomes of a delivery, one place at a time, and check that a unit test notices
	@SINCE='$(SINCE)' $(VERDICT) mutants tests/scripts/mutants $(if $(MUTANTS),'$(MUTANTS)')

.PHONY: fault-images
fault-images:
	@tests/scripts/broker images $(FAULT_VERSIONS)

.PHONY: bench
bench: broker ## run the throughput benchmark against raw lapin
	@$(VERDICT) bench $(CARGO) bench --features cli --bench throughput

.PHONY: lint
lint: ## check formatting, clippy, documentation and observability/
	@$(VERDICT) lint $(MAKE) run-lints

.PHONY: run-lints
run-lints:
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --features cli -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --features cli,testing,tower
	@PATH="$$(tests/scripts/promtool):$$PATH" observability/check

# DENY='bans licenses sources' leaves out the advisories, whose database comes from the network.
DENY ?= all
.PHONY: deny
deny: ## check the dependencies: licences, bans, sources and advisories
	@command -v cargo-deny >/dev/null || { echo 'make deny needs cargo-deny: cargo install cargo-deny --locked' >&2; exit 1; }
	@$(VERDICT) 'deny $(DENY)' $(CARGO) deny --all-features check --hide-inclusion-graph $(DENY)

# The newest release is the newest tag such as v0.1.0. Before there is one, BASELINE=main compares with a branch.
BASELINE ?= $(shell git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null)
.PHONY: semver
semver: ## compare the public API with the newest release, or with the git revision in BASELINE
	@command -v cargo-semver-checks >/dev/null || { echo 'make semver needs cargo-semver-checks: cargo install cargo-semver-checks --locked' >&2; exit 1; }
	@test -n '$(BASELINE)' || { echo 'make semver: no release has a tag yet, so name a git revision to compare with: make semver BASELINE=main' >&2; exit 1; }
	@echo 'semver: comparing the public API of the working tree with $(BASELINE), $(shell git log -1 --format='%h of %cs' '$(BASELINE)' 2>/dev/null)'
	@$(VERDICT) 'semver against $(BASELINE)' $(CARGO) semver-checks --baseline-rev '$(BASELINE)'

.PHONY: check-features
check-features: ## check that each feature compiles alone
	@$(VERDICT) check-features $(MAKE) run-check-features

# The library may be built without TLS, so it must also compile without any feature.
.PHONY: run-check-features
run-check-features:
	$(CARGO) check --no-default-features
	@for feature in $(FEATURES); do \
		echo "$(CARGO) check --no-default-features --features $$feature"; \
		$(CARGO) check --no-default-features --features "$$feature"; \
	done
