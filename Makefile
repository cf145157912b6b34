# Everything here sets up what it needs and says so. `make` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VERSIONS := 3.10 4.0 4.3
FEATURES := tls-ring tls-aws-lc otlp testing cli
CARGO ?= cargo
VERDICT := tests/scripts/verdict

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | while IFS=$$'\t' read -r target what; do printf '  make %-16s %s\n' "$$target" "$$what"; done

.PHONY: demo
demo: broker ## the main job on a real broker, in under a minute
	@$(VERDICT) demo $(CARGO) run --release --features cli -- demo

.PHONY: test
test: broker ## all tests, on a real broker
	@$(VERDICT) test $(MAKE) run-tests

# The very command that README gives; it runs the documentation's examples too.
.PHONY: run-tests
run-tests:
	$(CARGO) test --features cli

.PHONY: broker
broker: ## make sure that tests can have a RabbitMQ
	@tests/scripts/broker ensure

.PHONY: images
images: ## the images of all RabbitMQ versions that are tested, pulled or built
	@tests/scripts/broker images $(VERSIONS)

# Which of the tests in tests/; `integration` alone takes a quarter of the time.
VERSION_TESTS := *
.PHONY: versions
versions: images ## the tests against each RabbitMQ version
	@$(VERDICT) 'versions $(VERSIONS)' $(MAKE) $(VERSIONS:%=on-%)

# Not part of `test`: the unit tests and the documentation know no broker version.
.PHONY: $(VERSIONS:%=on-%)
$(VERSIONS:%=on-%): on-%:
	@echo "versions: RabbitMQ $*"
	REHOP_TEST_RABBITMQ_TAG=$*-management $(CARGO) test --features cli --test '$(VERSION_TESTS)'

# The cluster is of the first version. `make faults FAULT_VERSIONS=` takes the one broker that `make broker` finds.
FAULT_VERSIONS ?= 4.3 4.0 3.10
.PHONY: faults
faults: $(if $(FAULT_VERSIONS),fault-images,broker) ## the long run of the fault suite, on each RabbitMQ version
	@$(VERDICT) faults $(MAKE) run-faults

# First the properties that need no broker, with a hundred times as many random inputs as `make test` tries.
.PHONY: run-faults
run-faults:
	REHOP_TEST_INPUTS=100 $(CARGO) test --release --features cli --lib
	REHOP_FAULTS_LONG=1 REHOP_FAULTS_VERSIONS='$(FAULT_VERSIONS)' $(CARGO) test --release --features cli --test faults

.PHONY: fault-images
fault-images:
	@tests/scripts/broker images $(FAULT_VERSIONS)

.PHONY: bench
bench: broker ## the throughput benchmark, beside raw lapin
	@$(VERDICT) bench $(CARGO) bench --features cli --bench throughput

.PHONY: lint
lint: ## formatting, clippy, documentation, and the checks of observability/
	@$(VERDICT) lint $(MAKE) run-lints

.PHONY: run-lints
run-lints:
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --features cli -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --features cli
	@PATH="$$(tests/scripts/promtool):$$PATH" observability/check

.PHONY: check-features
check-features: ## each feature compiles alone
	@$(VERDICT) check-features $(MAKE) run-check-features

# A library without TLS is allowed, so no feature at all is a case too.
.PHONY: run-check-features
run-check-features:
	$(CARGO) check --no-default-features
	@for feature in $(FEATURES); do \
		echo "$(CARGO) check --no-default-features --features $$feature"; \
		$(CARGO) check --no-default-features --features "$$feature"; \
	done
