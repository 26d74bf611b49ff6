# `make help` prints one sentence for each target. The targets call `stampede`, which does the work and is tested.
.DEFAULT_GOAL := help
STAMPEDE := STAMPEDE_TYPED=make .venv/bin/stampede
option = $(if $($(1)),--$(2) "$($(1))")
flag = $(if $($(1)),--$(2))
CPU_OPTION = $(if $(filter command line,$(origin CPU)),--cpu $(CPU))  # some shells have a CPU of their own
MEASURED = $(call option,VARIANTS,variants) $(call flag,FULL,full) $(call option,DURATION,duration) $(call option,TRIALS,trials) $(call option,UNTIL,until) $(call option,JOBS,jobs) $(call option,SEED,seed) $(CPU_OPTION) $(call option,MACHINES,machines)
ANSWERS = $(call option,PREDICT,predict) $(if $(EXPLAIN),--explain "$$EXPLAIN") $(call option,SET,set) $(call flag,SOLUTION,solution) $(call flag,PAGE,page) $(call flag,RESTART,restart)

.PHONY: help lesson experiment try report notebook setup images down check quick test soak bench lock
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'Everything else is a command of .venv/bin/stampede:'
	@[ ! -x .venv/bin/stampede ] || $(STAMPEDE) --help

lesson: .venv/compiled  ## take the lesson in six steps, or go on with it (STEP=3 PREDICT=300 EXPLAIN="…" SET=threads=5 PAGE=1 SOLUTION=1 RESTART=1)
	@$(STAMPEDE) lesson $(STEP) $(ANSWERS)

experiment: .venv/compiled  ## measure NAME (VARIANTS=a,b FULL=1 DURATION=90s TRIALS=5 UNTIL=decided JOBS=1 SEED=7 CPU=burn MACHINES=machines.yaml)
	@$(STAMPEDE) run $(NAME) $(MEASURED)

try: .venv/compiled  ## measure your own service, which stampede init describes (SERVICE=my-service.yaml WAYS=limit,least-conn TRIALS=5)
	@$(STAMPEDE) try $(SERVICE) $(call option,WAYS,ways) $(call flag,FULL,full) $(call option,DURATION,duration) $(call option,TRIALS,trials)

report: .venv/compiled  ## compute the results of RUN again from its raw points (default: the latest run; TABLES=1, TABLE=claims)
	@$(STAMPEDE) report $(RUN) $(call flag,TABLES,tables) $(call option,TABLE,table)

notebook: .venv/compiled .venv/notebook  ## open any number of runs in JupyterLab
	@.venv/bin/jupyter lab analysis/explore.ipynb

setup: .venv/compiled images  ## make this machine ready without measuring anything

images: .venv/core
	@$(STAMPEDE) setup

down: .venv/core  ## remove the containers and networks of killed runs, and close the records of these runs
	@$(STAMPEDE) down

check: .venv/core .venv/tests  ## run the linter, the type checker, and the check of imports between floors
	@.venv/bin/ruff check && .venv/bin/ruff format --check && .venv/bin/mypy && PYTHONPATH=. .venv/bin/lint-imports --no-logo --no-cache

quick: .venv/compiled .venv/tests  ## run the short tests that need no container
	@PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest --dist loadfile --no-loadscope-reorder -n 3 tests/quick

test: .venv/core  ## run the checks, the quick tests, and the container tests that guard behaviour
	@PYTHONDONTWRITEBYTECODE= .venv/bin/python -m tools.tests

soak: setup .venv/tests  ## run the long tests: the phenomenon of every experiment, long faults and heavy loads
	@.venv/bin/python -m pytest tests/soak

bench: .venv/tests setup  ## measure the lab itself: its overhead, its speed, and whether trials side by side are fair
	@.venv/bin/python -m tools.bench

lock: .venv/core  ## pin the newest packages that the .in files allow
	@tools/lock.sh

.venv/compiled: .venv/core
	@tools/venv.sh compiled

.venv/browser: .venv/tests
	@tools/install-chromium.sh && touch $@

.venv/%: requirements/%.txt
	@tools/venv.sh $*
