# Every target sets up what it needs from a fresh clone; stamp files say what is there already.
# Wants cargo, Python 3.11 or later and, for the tests and the demo against real MCP servers, Node.

PYTHON ?= python3
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := test

DEV := $(CURDIR)/.venvs/dev
REFERENCE := $(CURDIR)/.venvs/reference
BIN := $(DEV)/bin

DEV_READY := .venvs/dev/.ready
REFERENCE_READY := .venvs/reference/.ready
PACKAGE := .venvs/dev/.package
PLUGIN := .venvs/dev/.plugin
FLOOR := target/release/examples/.floor
NODE_SERVERS := $(if $(shell command -v npm),tests/node/node_modules/.package-lock.json)
# Servers in Python: each set in an environment of its own, as what they depend on does not go together.
PYTHON_SERVERS := .venvs/servers/.ready .venvs/servers-sdk1/.ready
SERVERS := $(NODE_SERVERS) $(PYTHON_SERVERS)
# The libraries that the adapters are for.
ADAPTERS_READY := .venvs/adapters/.ready
SUITES := $(if $(shell command -v npm),tests/conformance/node_modules/.package-lock.json)

RUST := $(shell find src -name '*.rs') Cargo.toml Cargo.lock pyproject.toml
PLUGIN_FILES := $(shell find examples/plugin -type f -not -path '*/__pycache__/*' 2>/dev/null)
PYTHON_FOLDERS := $(wildcard python tests examples benches scripts)

# maturin finds the environment by this, both to install into it and to configure pyo3: with the same
# value everywhere nothing is compiled twice.
export VIRTUAL_ENV := $(DEV)
export NBTOOLS_REFERENCE_PYTHON := $(REFERENCE)/bin/python

.PHONY: demo test lint bench chaos soak conformance compat nanobot-tests fuzz stubs wheel format clean

demo: $(PACKAGE) $(PLUGIN) $(NODE_SERVERS)
	$(BIN)/python examples/demo.py

test: lint $(PLUGIN) $(REFERENCE_READY) $(SERVERS) $(ADAPTERS_READY) $(SUITES)
	cargo test --locked
	$(if $(NODE_SERVERS),cargo test --locked --test mcp_real -- --ignored)
	$(BIN)/python -m pytest tests/python

# Three builds and no more serve `test`: clippy's (all features), that of `cargo test` (no Python) and the
# installed package (release), out of which the stub is read. The cheap checks come before the builds.
lint: $(DEV_READY)
	cargo fmt --check
	$(BIN)/ruff check $(PYTHON_FOLDERS)
	$(BIN)/ruff format --check $(PYTHON_FOLDERS)
	$(BIN)/python scripts/check_tree.py
	$(BIN)/python scripts/check_layers.py
	cargo clippy --locked --all-targets --all-features -- -D warnings
	@$(MAKE) --no-print-directory $(PACKAGE)
	$(BIN)/python scripts/stubs.py --check
	$(BIN)/mypy --strict python
	$(BIN)/python -m mypy.stubtest nanobot_tools._native $(addprefix --allowlist ,$(wildcard scripts/stubtest-allowlist.txt))

# The floor, with its like for HTTP and the side in Rust, is built here alone: with its dependencies it is a build
# of its own, which `cargo bench` shares.
# Short runs: enough to compare, and to see that every bench still works.
bench: $(PACKAGE) $(REFERENCE_READY) $(NODE_SERVERS) $(FLOOR)
	cargo bench --locked --bench core --bench native -- --warm-up-time 1 --measurement-time 2
	$(BIN)/python benches/python/run.py

# Every fault over every transport under load; `test` runs a short form.
chaos: $(PACKAGE)
	cargo build --locked --example misbehaving_server
	$(BIN)/python tests/chaos/run.py

# Ten servers, a fault every second, a reload every ten.
MINUTES ?= 10
soak: $(PACKAGE)
	cargo build --locked --example misbehaving_server
	$(BIN)/python tests/chaos/soak.py --minutes $(MINUTES)

# The official suites, stable and alpha; `test` runs a few of their scenarios.
conformance: $(PACKAGE) $(SUITES)
	$(BIN)/python tests/conformance/run.py

# Real nanobot processes of four versions, without and with us; `test` runs one.
compat: $(PACKAGE)
	$(BIN)/python tests/compat/run.py

# nanobot's own test suite without and with the drop-in; wants a checkout of nanobot.
NANOBOT_SRC ?=
ifneq ($(filter nanobot-tests,$(MAKECMDGOALS)),)
$(if $(NANOBOT_SRC),,$(error give the folder of a checkout of nanobot: make nanobot-tests NANOBOT_SRC=...))
endif
nanobot-tests: $(PACKAGE)
	$(BIN)/python scripts/nanobot_tests.py "$(NANOBOT_SRC)"

# Minutes for each target, one after the other. A crash is kept in fuzz/artifacts; the input belongs into tests/corpus,
# where `cargo test` replays it. Sanitizers want a nightly toolchain.
FUZZ_MINUTES ?= 10
FUZZ_TARGETS ?= stdio sse schema render
fuzz:
	@command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
	for target in $(FUZZ_TARGETS); do \
		mkdir -p fuzz/corpus/$$target; \
		cargo +nightly fuzz run $$target fuzz/corpus/$$target tests/corpus/$$target -- \
			-max_total_time=$$(($(FUZZ_MINUTES) * 60)) -timeout=10 -rss_limit_mb=2048 -max_len=16384; \
	done

stubs: $(PACKAGE)
	$(BIN)/python scripts/stubs.py --write

wheel: $(DEV_READY)
	$(BIN)/maturin build --release --locked --out dist

format: $(DEV_READY)
	cargo fmt
	$(BIN)/ruff check --fix $(PYTHON_FOLDERS)
	$(BIN)/ruff format $(PYTHON_FOLDERS)

clean:
	rm -rf target .venvs dist tests/node/node_modules tests/conformance/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f python/nanobot_tools/_native*.so
	find python tests examples benches scripts -name __pycache__ -prune -exec rm -rf {} +

$(DEV_READY): requirements/dev.txt
	$(PYTHON) -m venv --clear $(DEV)
	$(BIN)/python -m pip install --quiet --requirement $<
	@touch $@

$(REFERENCE_READY): requirements/reference.txt
	$(PYTHON) -m venv --clear $(REFERENCE)
	$(REFERENCE)/bin/python -m pip install --quiet --requirement $<
	@touch $@

# `strip`: the stub is read out of the symbols of this build, with the same flags in scripts/stubs.py.
# Editable: changes to the Python sources count at once, changes to the Rust sources rebuild.
$(PACKAGE): $(DEV_READY) $(RUST)
	$(BIN)/maturin develop --release --locked -- -C strip=none
	@touch $@

$(PLUGIN): $(PACKAGE) $(PLUGIN_FILES)
	$(BIN)/python -m pip install --quiet ./examples/plugin
	@touch $@

.venvs/%/.ready: requirements/%.txt
	$(PYTHON) -m venv --clear .venvs/$*
	.venvs/$*/bin/python -m pip install --quiet --requirement $<
	@touch $@

tests/%/node_modules/.package-lock.json: tests/%/package.json tests/%/package-lock.json
	npm ci --prefix tests/$* --no-audit --no-fund --loglevel=error
	@touch $@

$(FLOOR): tests/servers/floor.rs tests/servers/floor_http.rs benches/python/side_rmcp.rs Cargo.toml Cargo.lock
	cargo build --locked --release --example floor_server --example floor_http --example side_rmcp
	@touch $@
