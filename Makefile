# Thin over the CMake presets and tools/. `make run` and `make test` do everything, missing packages
# included; the other targets take the machine as it is.
#
#   PRESET=host make build    another preset (CMakePresets.json): auto, host, cuda, asan, tsan
#   RUN_ARGS='--preset seed' make run
PRESET ?= auto
JOBS ?= $(shell nproc)
RUN_ARGS ?= --preset demo

BUILD := build/$(PRESET)
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help run test build bench model-check lint format clean configure

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

run:  ## the main job: install what is missing, build, run the layer, check against the reference
	@tools/setup.sh build
	@$(MAKE) configure
	@cmake --build $(BUILD) -j $(JOBS) --target slipstream_cli
	$(BUILD)/bin/slipstream run $(RUN_ARGS)

test:  ## everything CI needs, one summary at the end
	@tools/setup.sh test
	@PRESET=$(PRESET) JOBS=$(JOBS) tools/test.sh

build: configure  ## build everything of one preset
	@cmake --build $(BUILD) -j $(JOBS)

configure:
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET)

bench: configure  ## the benchmarks; results also in build/PRESET/bench/*.json
	@cmake --build $(BUILD) -j $(JOBS)
	@tools/bench.sh $(BUILD)

model-check:  ## the protocol's model with spin, all of it
	@if [ -f tests/model/check.py ]; then python3 tests/model/check.py; \
	else echo "model-check: tests/model is not there, left out"; fi

lint:  ## style, include graph, clang-tidy on the core files
	@tools/lint.sh

format:  ## clang-format on every tracked C++ and CUDA file
	@git ls-files '*.h' '*.cc' '*.cu' '*.cuh' '*.inl' | xargs -r clang-format -i

clean:  ## remove every build folder
	rm -rf build
