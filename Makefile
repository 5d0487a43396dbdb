# The two commands a newcomer needs are `make demo` and `make test`; both set up what they need first.
PYTHON ?= python3
# An index of torch besides pip's own, which has what it needs in the versions of constraints.txt: PyTorch's index of
# CPU wheels saves gigabytes of CUDA under Linux,
# make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
# Processes that share the tests.
WORKERS ?= 2

# What a test starts finds the package compiled, also where Python is told not to keep that.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test tests test-busy test-slow sanitize attack lint style types format docs site tour wheels
.PHONY: benchmarks bench-train bench-translate clean

setup: $(VENV)/.ready

SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/clearhead/kernels/csrc/*)

# Installs the package with an extra. Python compiles what it imports; pip would compile all of it, on one core.
define install
	@$(PYTHON) -c 'import sys; sys.exit("clearhead needs Python 3.11 or later, but $(PYTHON) is %d.%d: type for example \
		make $(or $(MAKECMDGOALS),demo) PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo '$(ANNOUNCED)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --no-compile -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch
	$(BIN)/pip install --no-compile -c constraints.txt -e '.[$(EXTRA)]'
	$(BIN)/python -c 'from clearhead.kernels.library import describe; print(describe())'
endef

$(VENV)/.train: EXTRA = train
$(VENV)/.train: ANNOUNCED = Setting up $(VENV) with PyTorch and what training needs: 1.2 GB, a minute or two. \
	Under Linux pip adds gigabytes of CUDA, unless TORCH_INDEX is set (see the Makefile).
$(VENV)/.train: $(SOURCES)
	$(install)
	touch $@

# What the tests need besides, compiled on all cores: fifteen thousand modules. Templates among them are not valid Python.
$(VENV)/.ready: EXTRA = dev
$(VENV)/.ready: ANNOUNCED = Setting up $(VENV) with everything that the tests need: 3.2 GB, a few minutes.
$(VENV)/.ready: $(SOURCES)
	$(install)
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	$(BIN)/python setup.py -q build_web
	touch $(VENV)/.train $@

demo: $(VENV)/.train
	$(BIN)/clearhead demo --out runs/demo

# mypy, which has one core busy for most of a minute, runs beside the tests.
test: style
	$(MAKE) --jobs 2 types tests

# A file is not split, so what its tests share is made once. In their order the slowest files come first. What is
# skipped is listed with its reason.
tests: setup
	$(BIN)/pytest -rs -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Beside processes that keep every core busy: no test may depend on how long something takes.
test-busy: setup
	pids=""; trap 'kill $$pids' EXIT INT QUIT TERM; \
	for core in $$(seq $$(getconf _NPROCESSORS_ONLN)); do while :; do :; done & pids="$$pids $$!"; done; \
	$(MAKE) test

# The longer tests, in the same way; of the longest file, whose tests share nothing, each test by itself. A model that a
# test trains may take longer than a test usually does.
FORMS := tests/unit/kernels/test_forms.py
SLOW := $(BIN)/pytest -m slow -rs -n $(WORKERS) -o faulthandler_timeout=1500
test-slow: setup
	$(SLOW) --dist loadfile --no-loadscope-reorder --ignore $(FORMS)
	$(SLOW) $(FORMS)

# Every form of the compiled core over hundreds of random models, built so that each read or write out of bounds and each
# undefined operation ends the run (gcc's AddressSanitizer and UBSan).
SANITIZED := build/sanitized
sanitize: setup
	rm -rf $(SANITIZED)
	CC="cc -fsanitize=address,undefined -fno-sanitize-recover=all" \
		$(BIN)/python setup.py -q build_ext --build-lib $(SANITIZED)
	cp -rn src/clearhead $(SANITIZED)/
	PYTHONPATH=$(SANITIZED) ASAN_OPTIONS=detect_leaks=0 \
		LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)" \
		$(BIN)/pytest -p no:cacheprovider -m "slow or not slow" tests/unit/kernels/test_forms.py

# What docs/reliability.md promises, attacked; about an hour and a half.
attack: setup
	$(BIN)/python tests/attack/campaign.py

lint: style types

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The pages that come from the code.
docs: setup
	$(BIN)/python docs/generate.py

# In build/site; `python -m http.server -d build/site` shows it.
site: tour
	$(BIN)/python docs/build_site.py

# The tour of the paper with all outputs, as one HTML file. It trains a model for a minute if there is no demo.
TOUR := build/tour.html
tour: $(TOUR)
$(TOUR): $(VENV)/.ready docs/tour.ipynb docs/tour.css docs/build_tour.py $(shell find src -name '*.py')
	mkdir -p $(dir $@)
	$(BIN)/python docs/build_tour.py $@

# An sdist, a wheel with the compiled core for each platform of setup.py, and one without it for all others. What is in
# them depends on the commit alone.
wheels: setup
	$(BIN)/pip install --quiet -c constraints.txt setuptools ziglang
	rm -rf build dist
	$(BIN)/python setup.py --quiet sdist
	for platform in $$($(BIN)/python -c 'import setup; print(*setup.TARGETS, "any")'); do \
		SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/pip wheel --quiet --no-deps --no-build-isolation \
			--wheel-dir dist --config-settings=--build-option=--plat-name=$$platform . || exit 1; \
	done
	cd dist && sha256sum *.tar.gz *.whl > SHA256SUMS

# What this machine can measure in an hour, into build/benchmarks; with a page.
benchmarks: setup
	$(BIN)/python bench/run_all.py

bench-train: setup
	$(BIN)/python bench/train.py --profile

bench-translate: setup
	$(BIN)/python bench/translate.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
