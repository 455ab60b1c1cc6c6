# Short names for the common jobs. All of them build with the presets of CMakePresets.json.
JOBS := $(shell nproc)
FUZZ_SECONDS := 60
CXX_FILES = $(shell find src tests benchmarks -name '*.h' -o -name '*.cc')

.DEFAULT_GOAL := help
.PHONY: help setup setup-clang build demo test asan tsan fuzz mutation-check bench format tidy

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

asan tsan: setup
	@cmake --preset $(PRESET) --log-level=WARNING
	@cmake --build --preset $(PRESET) --parallel $(JOBS)
	@ctest --preset $(PRESET) --parallel $(JOBS) --no-label-summary
asan: PRESET = asan-ubsan
asan:  ## all tests under the address and undefined-behaviour sanitizers
tsan: PRESET = tsan
tsan:  ## all tests under the thread sanitizer

fuzz: setup-clang  ## every fuzz target for FUZZ_SECONDS (60)
	@cmake --preset fuzz --log-level=WARNING
	@cmake --build --preset fuzz --parallel $(JOBS)
	@scripts/fuzz $(FUZZ_SECONDS)

mutation-check: setup  ## plant known bugs one by one; the golden tests must find each
	@python3 tools/mutation_check.py

bench: build  ## run the benchmarks
	@build/release/benchmarks/formats_bench
	@build/release/benchmarks/engine_bench models/ember-tiny
	@mkdir -p build/bench-store
	@build/release/benchmarks/store_bench build/bench-store
	@build/release/benchmarks/resume_bench models/ember-tiny build/bench-resume

format: setup-clang  ## clang-format all C++ files in place
	@clang-format -i $(CXX_FILES)

tidy: setup-clang build  ## clang-tidy over src
	@run-clang-tidy -quiet -p build/release -j $(JOBS) '/src/.*\.cc$$'
