# Short names for the common jobs. All of them build with the presets of CMakePresets.json.
JOBS := $(shell nproc)
FUZZ_SECONDS := 60
SOAK_SECONDS := 180
LOAD_SECONDS := 180
LOAD_CLIENTS := 1000
CXX_FILES = $(shell find src tests benchmarks -name '*.h' -o -name '*.cc')

.DEFAULT_GOAL := help
.PHONY: help setup setup-clang build demo test serve load-test server-bench dashboard-test dashboard-pictures asan tsan soak fuzz mutation-check bench format tidy

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' Makefile

setup:  ## install what is needed (Debian 12)
	@scripts/setup

setup-clang:
	@scripts/setup clang

build: setup
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release --parallel $(JOBS)

demo: build  ## build, then let the shipped model answer from a long document
	@scripts/demo

test: build  ## build, then run every test
	@ctest --preset release --parallel $(JOBS) --no-label-summary

serve: build  ## serve the shipped model on http://127.0.0.1:8080
	@build/release/src/cli/emberkv serve --model models/ember-tiny --store build/serve-store --store-size 1G

load-test: build  ## a server under LOAD_CLIENTS (1000) clients of all kinds for LOAD_SECONDS (180)
	@python3 -B benchmarks/server_load.py $(SERVED) --clients $(LOAD_CLIENTS) --seconds $(LOAD_SECONDS)

server-bench: build  ## requests/s, time to the first token, batching, and the server's own cost
	@python3 -B benchmarks/server_bench.py $(SERVED)
load-test server-bench: SERVED = build/release/src/cli/emberkv models/ember-tiny

dashboard-test: build  ## the dashboard in a headless browser
	@scripts/setup browser
	@.venv/bin/python3 -B tests/server/dashboard_test.py browser $(DASHBOARD)
dashboard-pictures: build  ## its pictures in docs/pictures, anew
	@scripts/setup browser
	@.venv/bin/python3 -B tests/server/dashboard_test.py pictures $(DASHBOARD) docs/pictures 600
dashboard-test dashboard-pictures: DASHBOARD = build/release/src/cli/emberkv models/ember-tiny web/index.html

asan tsan: setup
	@cmake --preset $(PRESET) --log-level=WARNING
	@cmake --build --preset $(PRESET) --parallel $(JOBS)
	@ctest --preset $(PRESET) --parallel $(JOBS) --no-label-summary
asan: PRESET = asan-ubsan
asan:  ## all tests under the address and undefined-behaviour sanitizers
tsan: PRESET = tsan
tsan:  ## all tests under the thread sanitizer

soak: setup  ## the store against its model for SOAK_SECONDS (180) under each sanitizer
	@for preset in asan-ubsan tsan; do \
	  cmake --preset $$preset --log-level=WARNING && \
	  cmake --build --preset $$preset --parallel $(JOBS) --target store_soak && \
	  build/$$preset/tests/faults/store_soak $(SOAK_SECONDS) || exit 1; \
	done

fuzz: setup-clang  ## every fuzz target for FUZZ_SECONDS (60)
	@cmake --preset fuzz --log-level=WARNING
	@cmake --build --preset fuzz --parallel $(JOBS)
	@scripts/fuzz $(FUZZ_SECONDS)

mutation-check: setup  ## plant known bugs one by one; the golden tests must find each
	@python3 tools/mutation_check.py

bench: build  ## every figure of docs/performance.md but the server's
	@scripts/bench

format: setup-clang  ## clang-format all C++ files in place
	@clang-format -i $(CXX_FILES)

tidy: setup-clang build  ## clang-tidy over src
	@run-clang-tidy -quiet -p build/release -j $(JOBS) '/src/.*\.cc$$'
