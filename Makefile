# Every target sets itself up: a virtual environment in .venv, from Python 3.11 or newer alone.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
DEV := .venv/.installed-dev
BENCH := .venv/.installed-bench

LONG := .venv/.installed-long
# What the code for other processors could get wrong: the suite without what generates no code.
COMPILED := tests --ignore=tests/docs --ignore=tests/base --ignore=tests/dtype --ignore=tests/ir --ignore=tests/array_api --ignore=tests/bars --ignore=tests/mutants --ignore=tests/tools --ignore=tests/data --ignore=tests/spec --ignore=tests/frontend

.PHONY: demo docs test onnx test-long test-machines test-arm smoke test-all mutants conformance lint bench soak format clean

demo: $(DEV)
	$(BIN)/python -m svod demo

test: $(DEV)
	$(BIN)/python -m pytest -n 2

# What takes long, or needs torch: journeys on the interpreter and against torch, fresh random programs.
test-long: $(LONG)
	$(BIN)/python -m pytest -n 2 -m long
	$(BIN)/python -m pytest -n 2 -m 'not long' tests/frontend/torch
	SVOD_ARRAY_API_SUITE=auto $(BIN)/python -m pytest -n 0 -m 'not long' tests/array_api/test_public_suite.py

# All of ONNX's backend suite with what is left out, models of torchvision, transformers and scikit-learn, files
# beside onnxruntime, and 1,000 damaged files: an hour. All parts run; one that fails ends it with an error.
onnx: $(LONG)
	@$(PIP) torchvision==0.28.0 onnxscript
	failed=0; \
	$(BIN)/python -m pytest -n 2 -m 'long or not long' tests/frontend/onnx tests/tools/test_models.py \
	    --ignore tests/frontend/onnx/test_backend_suite.py || failed=1; \
	$(BIN)/python -m tests.frontend.onnx.coverage || failed=1; \
	$(BIN)/python -m tests.frontend.onnx.zoo || failed=1; \
	$(BIN)/python -m tests.frontend.onnx.fuzz 0 1000 --against || failed=1; \
	exit $$failed

# The suite with the code of smaller processors.
test-machines: $(DEV)
	SVOD_MACHINE=avx2 $(BIN)/python -m pytest -n 2 $(COMPILED)
	SVOD_MACHINE=sse4 $(BIN)/python -m pytest -n 2 $(COMPILED)

# A part of the suite on aarch64, under qemu: make test-arm; FILES='tests/...' chooses another part.
# Needs apt, dpkg-deb and qemu-aarch64 (Debian: qemu-user); a quarter of an hour.
test-arm: $(DEV)
	$(BIN)/python -m tests.arm build/arm $(FILES)

# The wheel in a fresh environment, as people install it; PYTHONS='python3.12 python3.13' tries more.
smoke: $(DEV)
	$(BIN)/python -m tests.wheel $(PYTHONS)

test-all: test test-long test-machines

# The consortium's suite against svod: make conformance SUITE=<checkout of array-api-tests>
conformance: $(DEV)
	@test -d '$(SUITE)' || { echo 'give a checkout: make conformance SUITE=<array-api-tests>'; exit 2; }
	@$(PIP) ndindex pytest-json-report
	SVOD_ARRAY_API_SUITE='$(abspath $(SUITE))' $(BIN)/python -m pytest -n 0 -s --timeout 7200 tests/array_api/test_public_suite.py

# Planted faults, and whether the tests of their stage notice them: about an hour on two cores
mutants: $(DEV)
	$(BIN)/python -m tests.mutants

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict --follow-imports=silent tests/public/user_program.py
	$(BIN)/lint-imports

# The documentation site in build/site/html; the build itself needs no network.
docs: $(DEV)
	@$(PIP) --editable '.[docs]'
	$(BIN)/python docs/site/build.py

bench: $(BENCH)
	$(BIN)/python -m svod.tools.bench

# Forks beside compiling threads, 20,000 graphs, 500 kills, 32 threads for 10 minutes: an hour.
soak: $(DEV)
	for each in forks kill graphs threads; do $(BIN)/python -m bench.soak $$each || exit 1; done

format: $(DEV)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
	find svod tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEV): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --editable '.[dev]'
	@touch $@

$(LONG): $(DEV)
	@$(PIP) --editable '.[docs]'
	@$(PIP) torch==2.13.0 transformers pandas scikit-learn skl2onnx onnxruntime pillow selenium ndindex pytest-json-report
	@touch $@

$(BENCH): $(DEV)
	@$(PIP) --editable '.[bench]'
	@touch $@
