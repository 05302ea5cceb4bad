# All targets need Python 3.11, gcc and make. `make e2e` also needs Debian, root and Go.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Without files of bytecode, each process of pytest compiles all tests again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help run demo test test-fast lint format protos pictures bench soak peers e2e e2e-more lock clean

help:
	@echo "make run    read this machine's GPUs; without a GPU, run the demo"
	@echo "make test   run all tests that need no GPU, no root and no network; test-fast: the quick ones"
	@echo "make lint   check style, types, import contracts and words"
	@echo "make bench  measure speed, as ratios to named baselines"
	@echo "make soak   inject faults at random times; MINUTES=30; SEED= repeats a run"
	@echo "make e2e    test with a real Prometheus, Collector and Kubernetes (Debian, root, Go)"
	@echo "make e2e-more  test with more programs that scrape (Debian, Go)"

# Two stamp files, so that `make run` does not install the dependencies of the tests.
$(VENV)/.run: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "podgpu: installing into $(VENV), once; this can take some minutes"
	$(BIN)/python -m pip --disable-pip-version-check install -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e '.[dev,archive]'
	@touch $(VENV)/.run $@

run: $(VENV)/.run
	@if [ -e /dev/nvidiactl ]; then \
		exec $(BIN)/podgpu run; \
	else \
		echo "podgpu: no NVIDIA GPU on this machine, so this is podgpu demo"; \
		exec $(BIN)/podgpu demo; \
	fi

demo: $(VENV)/.run
	@exec $(BIN)/podgpu demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 4 --dist worksteal

# Properties with few examples, and no slow test: for the time between two edits.
test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest -n 3 --dist worksteal -q -m "not slow" --hypothesis-profile=fast

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.support.words

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Compile the schemas of messages from other programs. The results are checked in next to them.
protos: $(VENV)/.dev
	$(BIN)/python -m tests.support.protos

bench: $(VENV)/.dev
	$(BIN)/python -m pytest tests/bench -s -q --override-ini=addopts= --override-ini=timeout=300 --import-mode=importlib -p no:cacheprovider

# The pictures of the README, from the demo. The page needs Chromium.
pictures: $(VENV)/.dev
	$(BIN)/python -m tests.docs.pictures

# The full disk is a tmpfs in a separate mount namespace, which needs root or user namespaces.
MINUTES ?= 30
soak: $(VENV)/.dev
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# Build containerd, etcd, Kubernetes, a Collector and Prometheus 3 from source, once (some minutes).
peers: $(VENV)/.dev
	$(BIN)/python -m tests.e2e.peers

# Two processes at a time: the tests of the cluster, and all others, whose output is shown when they
# have ended. Then the tests that measure times, without others.
E2E = $(BIN)/python -m pytest tests/e2e -v --durations=15 --override-ini=addopts= --import-mode=importlib -p no:cacheprovider
e2e: peers
	@$(E2E) -m "not cluster and not alone and not more" > build/e2e/others.txt 2>&1 & others=$$!; \
	$(E2E) -m "cluster and not alone"; cluster=$$?; \
	wait $$others; others=$$?; cat build/e2e/others.txt; \
	$(E2E) -m alone; exit $$(($$? | cluster | others))

# The tests with programs that are built for one comparison alone: other scrapers.
e2e-more: $(VENV)/.dev
	$(E2E) -m more

# constraints.txt pins the packages of developers and CI. requirements.txt and
# image/build-requirements.txt pin those of the image, with hashes.
lock: $(VENV)/.dev
	$(PIP) install pip-tools
	$(BIN)/pip-compile --quiet --upgrade --no-header --no-annotate --strip-extras --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host --extra dev --extra archive --output-file constraints.txt pyproject.toml
	$(BIN)/pip-compile --quiet --no-header --no-annotate --strip-extras --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host --constraint constraints.txt --generate-hashes --extra archive \
		--output-file requirements.txt pyproject.toml
	$(BIN)/pip-compile --quiet --no-header --no-annotate --strip-extras --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host --constraint constraints.txt --generate-hashes --only-build-deps --build-deps-for wheel \
		--output-file image/build-requirements.txt pyproject.toml

# One step of a release: check, python, image, sbom, chart, sums, provenance, push, sign or verify.
# The artefacts are in dist/. docs/releasing.md describes the steps and their settings.
release-%:
	@$(PYTHON) -m deploy.release $*

clean:
	rm -rf $(VENV) build dist
