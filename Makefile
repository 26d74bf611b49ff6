# `make help` prints one sentence for each target. The targets call `lab`, which does the work and is tested.
.DEFAULT_GOAL := help
LAB := .venv/bin/lab
CPU_OPTION = $(if $(filter command line,$(origin CPU)),--cpu $(CPU))  # some shells have a CPU of their own

.PHONY: help lesson experiment watch reproduce list plan try init report verify notebook setup doctor down schema check quick test soak bench lock
help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

lesson: .venv/core  ## take the lesson in six steps, or go on with it (STEP=3 PREDICT=300 SET=threads=5 PAGE=1 SOLUTION=1 RESTART=1)
	@$(LAB) lesson

experiment: .venv/core  ## measure NAME (VARIANTS=a,b FULL=1 DURATION=90s TRIALS=5 UNTIL=decided JOBS=1 SEED=7 CPU=burn MACHINES=machines.yaml AGAINST_ITSELF=1)
	@$(LAB) run $(NAME) $(CPU_OPTION)

watch: .venv/core  ## measure NAME, and show its requests in a browser while the load runs (PORT=8377)
	@$(LAB) watch $(NAME) $(CPU_OPTION)

reproduce: .venv/core  ## measure every experiment, or go on with it, and write one page of all published figures (FRESH=1 SHOW=1 TO=mine.json)
	@$(LAB) reproduce

list: .venv/core  ## list the experiments and their questions
	@$(LAB) list

plan: .venv/core  ## print what NAME would measure, in which order, and for how long
	@$(LAB) plan $(NAME) $(CPU_OPTION)

try: .venv/core  ## measure your own service as it is served today and in other ways (SERVICE=my-service.yaml WAYS=limit,least-conn)
	@$(LAB) try $(SERVICE)

init: .venv/core  ## write the file that describes the service in FOLDER, for make try (LOG=access.log TO=my-service.yaml)
	@$(LAB) init $(FOLDER)

report: .venv/core  ## compute all results again from the raw points of RUN (default: the latest run; TABLES=1, TABLE=claims, MARKDOWN=1)
	@$(LAB) report $(RUN)

verify: .venv/core  ## check that RUN (default: the latest run) was not changed, and compute its results again (AGAINST=older/summary.json)
	@$(LAB) verify $(RUN)

notebook: .venv/core .venv/notebook  ## open any number of runs in JupyterLab
	@.venv/bin/jupyter lab lab/apps/notebook/explore.ipynb

setup: .venv/core  ## make this machine ready without measuring anything
	@$(LAB) setup

doctor: .venv/core  ## say what this machine has and lacks, and change nothing
	@$(LAB) doctor

down: .venv/core  ## remove the containers and networks of killed runs, and close the records of these runs
	@$(LAB) down

schema: .venv/core  ## print the JSON schema of experiment files, for editors
	@$(LAB) schema

check: .venv/core .venv/tests  ## run the linter, the type checker, and the check of imports between floors
	@.venv/bin/ruff check && .venv/bin/ruff format --check && .venv/bin/mypy && PYTHONPATH=. .venv/bin/lint-imports --no-logo --no-cache

SIDE_BY_SIDE = .venv/bin/python -m pytest --dist loadfile --no-loadscope-reorder
quick: .venv/core .venv/tests  ## run the short tests that need no container, in under two minutes
	@$(SIDE_BY_SIDE) -n 3 -m "not containers and not engine and not long"

test: check setup .venv/browser  ## run the checks, the quick tests, and the container tests that guard behaviour
	@$(SIDE_BY_SIDE) -n 4 -m "not containers"  # one of the four waits for the engine most of the time
	@.venv/bin/python -m pytest -m containers

soak: setup .venv/tests  ## run the long tests: the phenomenon of every experiment, long faults and heavy loads
	@.venv/bin/python -m pytest --soak

bench: .venv/tests setup  ## measure the lab itself: its overhead, its speed, and whether trials side by side are fair
	@.venv/bin/python -m tests.bench

lock: .venv/core  ## pin the newest packages that the .in files allow
	@tools/lock.sh

.venv/browser: .venv/tests
	@tools/install-chromium.sh && touch $@

.venv/%: requirements/%.txt
	@tools/venv.sh $*
