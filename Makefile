# Each target is one sentence in `make help`; the work is in `lab`, where it is tested.
.DEFAULT_GOAL := help
LAB := .venv/bin/lab
CPU_OPTION = $(if $(filter command line,$(origin CPU)),--cpu $(CPU))  # some shells have a CPU of their own

.PHONY: help experiment aa list plan report verify export notebook setup doctor down schema check quick test soak bench lock
help:  ## what can be made
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

experiment: .venv/core  ## measure NAME (VARIANTS=a,b FULL=1 DURATION=90s TRIALS=5 JOBS=1 SEED=7 CPU=burn)
	@$(LAB) run $(NAME) $(CPU_OPTION)

aa: .venv/core  ## measure one variant of NAME against itself: the smallest difference that this machine can tell
	@$(LAB) aa $(NAME) $(CPU_OPTION)

list: .venv/core  ## the experiments and their questions
	@$(LAB) list

plan: .venv/core  ## what NAME would measure, in which order, for how long
	@$(LAB) plan $(NAME) $(CPU_OPTION)

report: .venv/core  ## derive everything again from the raw points of RUN (default: the latest; MARKDOWN=1)
	@$(LAB) report $(RUN)

verify: .venv/core  ## whether RUN (default: the latest) is still what was measured, and its results follow
	@$(LAB) verify $(RUN)

export: .venv/core  ## verify RUN (default: the latest) and pack it into one file (TO=name.tar.gz)
	@$(LAB) export $(RUN)

notebook: .venv/core .venv/notebook  ## aggregate any number of runs in JupyterLab
	@.venv/bin/jupyter lab analysis/explore.ipynb

setup: .venv/core  ## make this machine ready without measuring anything
	@$(LAB) setup

doctor: .venv/core  ## what this machine has and lacks
	@$(LAB) doctor

down: .venv/core  ## remove what killed runs left behind
	@$(LAB) down

schema: .venv/core  ## the JSON schema of experiment files, for editors
	@$(LAB) schema

check: .venv/core .venv/tests  ## lint and types
	@.venv/bin/ruff check && .venv/bin/ruff format --check && .venv/bin/mypy

quick: .venv/core .venv/tests  ## the tests that need no container, side by side: under two minutes
	@.venv/bin/python -m pytest -m "not containers" -n 3 --dist loadfile --no-loadscope-reorder

test: check quick setup .venv/browser  ## lint, types, the quick tests, and the container tests that guard behaviour
	@.venv/bin/python -m pytest -m containers

soak: setup .venv/tests  ## every experiment's phenomenon, long faults and heavy loads, on real containers
	@.venv/bin/python -m pytest --soak

bench: .venv/tests setup  ## measure the lab itself: what it adds, how fast it reads, whether side by side is fair
	@.venv/bin/python -m tests.bench

lock: .venv/core  ## pin the newest packages that the .in files allow
	@tools/lock.sh

.venv/browser: .venv/tests
	@tools/install-chromium.sh && touch $@

.venv/%: requirements/%.txt
	@tools/venv.sh $*
