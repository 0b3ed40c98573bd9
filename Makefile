# Every command sets up all that it needs in .venv, once: a second call installs nothing.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo show test test-long test-processors test-rest test-integrations test-trackers scan-integrations bench-guard same-numbers lint types docs wheel relocate-mutations clean

demo: $(VENV)/.runs
	$(VENV)/bin/spo compare InvertedDoublePendulum-v4 --objectives ppo-clip spo spo-adaptive --paper --lr-schedule constant --steps 150k --epochs 30 --horizon 64 --hidden 64 64 64 64 64 64 64
	@echo && echo "The same with five seeds, from the runs in results/demo:"
	$(VENV)/bin/spo report results/demo --out runs/five-seeds/report.html
	@echo && echo "The paper's task and length, from the runs in results/table1:"
	$(VENV)/bin/spo report results/table1 --out runs/full-length/report.html

# The start of the paper's runs on Ant-v4, to where the returns part.
show: $(VENV)/.runs
	$(VENV)/bin/spo compare Ant-v4 --objectives ppo-clip spo --paper --steps 1.5M --schedule-steps 10M --hidden 256 256 128 128 64 64

test: $(VENV)/.tests lint types
	$(VENV)/bin/python -m pytest -n 3 --dist worksteal

test-long: $(VENV)/.tests
	$(VENV)/bin/python -m pytest -n 2 --dist worksteal --long

test-processors: $(VENV)/.tests
	$(VENV)/bin/python tests/processors.py -n 2 --dist worksteal

# What takes other libraries, a cluster, a browser or a compiler, the documentation's examples, and like cases.
test-rest: $(VENV)/.tests
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile --rest

test-integrations: $(VENV)/.tests
	$(VENV)/bin/python benchmarks/integrations.py test $(HOSTS)

test-trackers: $(VENV)/.tests
	$(VENV)/bin/python benchmarks/trackers.py $(TRACKERS)

scan-integrations: $(VENV)/.tests
	$(VENV)/bin/python benchmarks/integrations.py scan $(HOSTS)

bench-guard: $(VENV)/.tests
	$(VENV)/bin/python benchmarks/guard.py

same-numbers: $(VENV)/.tests
	$(VENV)/bin/python benchmarks/same_numbers.py $(BASE)

lint: $(VENV)/.tests
	$(VENV)/bin/ruff check src tests benchmarks examples
	$(VENV)/bin/ruff format --check src tests benchmarks examples

types: $(VENV)/.tests
	$(VENV)/bin/mypy

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build

relocate-mutations: $(VENV)/.tests
	$(VENV)/bin/python tests/relocate.py

# Installs what users would, into an empty environment, and trains there from another directory.
wheel: $(VENV)/.runs
	rm -rf build/wheel && mkdir -p build/wheel/elsewhere
	$(VENV)/bin/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt build/wheel/*.whl
	cd build/wheel/elsewhere && ../venv/bin/spo --version
	cd build/wheel/elsewhere && ../venv/bin/spo train CartPole-v1 --preset classic --steps 4k --compile off --out run
	cd build/wheel/elsewhere && ../venv/bin/spo eval run --episodes 2
	cd build/wheel/elsewhere && ../venv/bin/spo bench smoke --dry-run
	build/wheel/venv/bin/python -c 'import importlib.resources, spo; assert importlib.resources.files(spo).joinpath("py.typed").is_file()'

$(VENV)/.runs: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11; name a newer one with PYTHON=..."; exit 2; }
	@echo "setting up $(VENV) (a few minutes, once)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[mujoco,report]'
	@touch $@

$(VENV)/.tests: $(VENV)/.runs
	@echo "installing what the tests need"
	$(PIP) --editable '.[mujoco,atari,envpool,tensorboard,report,watch,video,ray,export,tune,hub,dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.runs
	@echo "installing what the documentation needs"
	$(PIP) --editable '.[mujoco,report,docs]'
	@touch $@

clean:
	rm -rf $(VENV) .venvs benchmarks/.venvs build *.egg-info src/*.egg-info
