# Python 3.11, gcc and make are enough for everything but `make e2e`, which wants Debian, root and Go.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help run demo test lint format protos bench soak peers e2e lock clean

help:
	@echo "make run    sample this machine's GPUs, or play a recording where there is none"
	@echo "make test   all tests that need no GPU, no root and no network"
	@echo "make lint   style, types and import contracts"
	@echo "make bench  speed, as ratios against named baselines"
	@echo "make soak   all that can go wrong at random moments; MINUTES=30, SEED= repeats a run"
	@echo "make e2e    against a real Prometheus, Collector and Kubernetes (Debian, root, Go)"

# Two stamps, so that `make run` installs nothing that only the tests need.
$(VENV)/.run: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.run $@

run: $(VENV)/.run
	@if [ -e /dev/nvidiactl ]; then \
		exec $(BIN)/podgpu run; \
	else \
		echo "podgpu: no NVIDIA GPU here: playing the recording of a node with four"; \
		exec $(BIN)/podgpu demo; \
	fi

demo: $(VENV)/.run
	@exec $(BIN)/podgpu demo

test: $(VENV)/.dev
	$(BIN)/python -X dev -m pytest -n 4 --dist worksteal

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The schemas of what others send us, compiled; checked in beside their sources.
protos: $(VENV)/.dev
	$(BIN)/python -m tests.support.protos

bench: $(VENV)/.dev
	$(BIN)/python -m pytest tests/bench -s -q --override-ini=addopts= --override-ini=timeout=300 --import-mode=importlib -p no:cacheprovider

# The disk that fills up is a tmpfs in a mount namespace of its own: root or user namespaces.
MINUTES ?= 30
soak: $(VENV)/.dev
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# containerd, etcd, Kubernetes, a Collector and Prometheus 3, from source: minutes, but only once.
peers: $(VENV)/.dev
	$(BIN)/python -m tests.e2e.peers

e2e: peers
	$(BIN)/python -m pytest tests/e2e -v --override-ini=addopts= --import-mode=importlib -p no:cacheprovider

# constraints.txt pins what developers and CI install, requirements.txt and
# image/build-requirements.txt (with hashes) the image.
lock: $(VENV)/.dev
	$(PIP) install pip-tools
	$(BIN)/pip-compile --quiet --upgrade --no-header --no-annotate --strip-extras --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host --extra dev --output-file constraints.txt pyproject.toml
	$(BIN)/pip-compile --quiet --no-header --no-annotate --strip-extras --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host --constraint constraints.txt --generate-hashes \
		--output-file requirements.txt pyproject.toml
	$(BIN)/pip-compile --quiet --no-header --no-annotate --strip-extras --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host --constraint constraints.txt --generate-hashes --only-build-deps --build-deps-for wheel \
		--output-file image/build-requirements.txt pyproject.toml

clean:
	rm -rf $(VENV) build dist
