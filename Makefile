# A thin layer over CMake: `make help` lists what there is.
PRESET ?= release
BUILD := $(if $(filter release,$(PRESET)),build,build-$(PRESET))
JOBS ?= $(shell nproc)
# Tests also wait. More than eight at once would starve those that measure time.
export CTEST_PARALLEL_LEVEL ?= $(shell n=$$(nproc); echo $$((n < 7 ? n + 1 : 8)))
MODEL_REPOSITORY ?= models/pretrained
FORMATTED := $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help deps build programs demo serve test bench gpu_prefix wheel deb lint format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z_]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  PRESET=release|debug|asan|tsan chooses the build (now: $(PRESET), in $(BUILD)/)"

deps:  ## install the missing packages (apt; through sudo when not root)
	@scripts/deps.sh build test

$(BUILD)/build.ninja: CMakeLists.txt CMakePresets.json
	@scripts/deps.sh build $(if $(filter asan,$(PRESET)),fuzz)
	@cmake --preset $(PRESET) >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@mkdir -p $(BUILD) && mv $(BUILD).log $(BUILD)/configure.log

build: $(BUILD)/build.ninja  ## build everything into build/bin
	@cmake --build $(BUILD) -j $(JOBS)

programs: $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target sru_server sru_client sru_bench

demo: programs  ## start the server on the bundled model, ask it six questions, stop it
	@scripts/demo.sh $(BUILD)/bin

serve: programs  ## run the server on MODEL_REPOSITORY (default: the bundled model)
	@$(BUILD)/bin/sru_server --model_repository=$(MODEL_REPOSITORY)

test: build  ## build and run the tests (FULL=1: also those of every data type, instruction set and order)
	@scripts/deps.sh test
	@ctest --preset $(PRESET) --no-tests=error $(if $(FULL),,-LE '^full$$')

bench: $(BUILD)/build.ninja  ## measure the CPU engine (half an hour; QUICK=1: minutes) and write build/reports/report.md
	@scripts/deps.sh bench
	@cmake --build $(BUILD) -j $(JOBS) --target sru_bench kernel_benchmarks
	@scripts/report.py --bin $(BUILD)/bin --python=/usr/bin/python3 --parts=layers,systems,pytorch $(if $(QUICK),--quick --out $(BUILD)/report.md)

gpu_prefix:  ## an installation for a GPU machine, at most 68 MB: build-gpu_prefix/prefix.tar.gz (WITH=cublaslt,published: more)
	@scripts/deps.sh build
	@cmake --preset gpu_prefix
	@cmake --build --preset gpu_prefix -j $(JOBS)
	@scripts/gpu_prefix.sh --with=$(WITH) build-gpu_prefix

wheel: programs  ## make the Python package sru-server in build/packages
	@deploy/make_wheel.py $(BUILD)

deb: programs  ## make a package for this Debian or Ubuntu in build/packages
	@scripts/deps.sh packages
	@cd $(BUILD) && cpack -G DEB

lint: $(BUILD)/build.ninja  ## check the formatting, run clang-tidy (QUICK=1: not of tests; SINCE=COMMIT: what changed)
	@scripts/deps.sh lint
	@scripts/lint.sh $(BUILD) $(if $(QUICK),quick) $(if $(SINCE),since=$(SINCE))

format:  ## rewrite the C++ files with clang-format
	@scripts/deps.sh lint
	@clang-format -i $(FORMATTED)

clean:  ## remove the build folders
	@rm -rf build build-debug build-asan build-tsan build-gpu_prefix build-client build-arm64
