# make build | demo | test | test-long | lint | format | sanitize | tsan | bench | clean
# make unit FOLDER=graph      one folder's C++ tests, in a build of their own without torch (quick)
#
# The command lands in build/bin/outsize, the Python environment in build/venv.

JOBS ?= 2
PYTHON := build/venv/bin/python
BIN := build/venv/bin
# More for cmake, such as -DOUTSIZE_WERROR=ON.
CMAKE_ARGS ?=
BENCH ?= packing remat swap combined swapadvisor atp planning sharing

CPP_FILES = $(shell find outsize python/bind tests fuzz -name '*.cc' -o -name '*.h' 2>/dev/null | sort)
PY_FILES = $(wildcard conftest.py scripts/*.py) $(shell find python tests -name '*.py' 2>/dev/null)

.PHONY: build bootstrap demo test test-long unit format lint lint-format lint-black lint-ruff \
	lint-mypy lint-layers sanitize tsan bench clean distclean

build: bootstrap
	cmake -G Ninja -S . -B build -DOUTSIZE_WERROR=OFF $(CMAKE_ARGS)
	cmake --build build -j $(JOBS)

bootstrap:
	scripts/bootstrap.sh

demo: build
	OMP_WAIT_POLICY=passive $(PYTHON) -m outsize.bench.demo

test: build
	$(PYTHON) scripts/run_tests.py $(RUN_TESTS_ARGS)

test-long: build
	$(PYTHON) scripts/run_tests.py --long --timeout 3600

unit: bootstrap
	cmake -G Ninja -S . -B build/unit/$(FOLDER) -DOUTSIZE_TORCH=OFF $(CMAKE_ARGS) >build/unit-$(FOLDER).log \
		|| { cat build/unit-$(FOLDER).log; exit 1; }
	cmake --build build/unit/$(FOLDER) -j $(JOBS) --target outsize_$(FOLDER)_test
	build/unit/$(FOLDER)/bin/tests/outsize_$(FOLDER)_test --gtest_brief=1 $(GTEST_ARGS)

format: bootstrap
	$(if $(CPP_FILES),$(BIN)/clang-format -i $(CPP_FILES))
	$(BIN)/black --quiet $(PY_FILES)
	$(BIN)/ruff check --quiet --fix $(PY_FILES)

lint: lint-format lint-black lint-ruff lint-mypy lint-layers

lint-format: bootstrap
	$(if $(CPP_FILES),$(BIN)/clang-format --dry-run -Werror $(CPP_FILES))

lint-black: bootstrap
	$(BIN)/black --check --quiet --diff $(PY_FILES)

lint-ruff: bootstrap
	$(BIN)/ruff check $(PY_FILES)

lint-mypy: bootstrap
	$(if $(wildcard python/outsize/*.py),$(BIN)/mypy)

lint-layers: bootstrap
	$(PYTHON) scripts/check_layers.py

# The core (no torch) under AddressSanitizer with UndefinedBehaviorSanitizer.
sanitize: bootstrap
	cmake -G Ninja -S . -B build/asan -DOUTSIZE_SANITIZE=address $(CMAKE_ARGS)
	cmake --build build/asan -j $(JOBS)
	$(PYTHON) scripts/run_tests.py --no-python --bin-dir build/asan/bin/tests --label asan/ $(RUN_TESTS_ARGS)

# What has threads, under ThreadSanitizer; of the planners' tests those that use some.
TSAN_PLANNERS := *AnyThreadCount*
TSAN_FOLDERS = $(foreach folder,tiers run share planners,$(if $(wildcard outsize/$(folder)/*_test.cc \
	outsize/$(folder)/*/*_test.cc),$(folder)))
comma := ,
empty :=
space := $(empty) $(empty)
tsan: bootstrap
ifneq ($(TSAN_FOLDERS),)
	cmake -G Ninja -S . -B build/tsan -DOUTSIZE_SANITIZE=thread $(CMAKE_ARGS)
	cmake --build build/tsan -j $(JOBS) --target $(TSAN_FOLDERS:%=outsize_%_test)
	$(PYTHON) scripts/run_tests.py --no-python --no-aslr --bin-dir build/tsan/bin/tests --label tsan/ \
		--only $(subst $(space),$(comma),$(strip $(filter-out planners,$(TSAN_FOLDERS)))) $(RUN_TESTS_ARGS)
	GTEST_FILTER='$(TSAN_PLANNERS)' $(PYTHON) scripts/run_tests.py --no-python --no-aslr \
		--bin-dir build/tsan/bin/tests --label tsan/ --only planners $(RUN_TESTS_ARGS)
endif

bench: build
	cmake --build build -j $(JOBS) --target benches
	@for bench in build/bin/bench/*_bench; do \
		if [ -x "$$bench" ]; then echo "== $$bench"; "$$bench" --benchmark_min_time=0.2 || exit 1; fi; \
	done
	@mkdir -p build/bench
	@for name in $(BENCH); do \
		echo "== $$name"; \
		OMP_WAIT_POLICY=passive $(PYTHON) -m outsize.bench $$name --json build/bench/$$name.json || exit 1; \
	done

# Keeps the Python environment; distclean takes that too.
clean:
	@if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name venv -exec rm -rf {} +; fi

distclean:
	rm -rf build
