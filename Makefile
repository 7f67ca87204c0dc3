# `make help` lists the targets. Everything that is built is in build/, .venv/ and .cache/.
PREFIX ?= /usr/local
DESTDIR ?=
BIN := .venv/bin
# The tests start thousands of Pythons, which would each compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup plugin demo examples page docs lint style test nightly matrix matrix-full matrix-torch chaos failover slurm-suite frameworks launch-corpus fuzz bench-planner \
	bench-elastic exactly-once bench-commands bench-impact bench-scale bench-slurmctld paper install deb rpm \
	packages machine wheel clean

help:
	@echo 'make demo             a private Slurm cluster, two trainers in its holes; about 4 minutes'
	@echo 'make test             the checks and tests for each change, in lanes side by side; LANES="units torch"'
	@echo 'make nightly          all other tests: newer Slurms whole, oldest torch, chaos, packages, machine; hours'
	@echo 'make page             the web page on made-up data of 5,000 nodes; until Ctrl-C'
	@echo 'make examples         the examples on a private Slurm cluster; some minutes'
	@echo 'make docs             the documentation as a site in build/site; fetches nothing'
	@echo 'make matrix           tests that depend on the version of Slurm, on newer ones, in a rootfs each'
	@echo 'make matrix-full      all Slurm tests on newer Slurms'
	@echo 'make matrix-torch     tests of the code in jobs on other versions of torch: PAIRS=python3.12:2.9.1; an hour, 7 GB'
	@echo 'make chaos            faults of all kinds on a cluster that trains; CHAOS="--minutes 60 --seed 7"'
	@echo 'make failover         the first of two control hosts dies while four trainers train, 20 times; an hour'
	@echo 'make frameworks       Hugging Face, accelerate, Lightning, FSDP2 as nodes come and go; 20 minutes'
	@echo 'make launch-corpus    28 scripts as people write them, as trainers: one group, and again after a reclaim; 10 minutes or more'
	@echo "make slurm-suite      SchedMD's own tests, without and with trainers; SOURCE=<Slurm's source>; hours"
	@echo 'make fuzz             fuzzes the parsers of texts from users and strangers; FUZZ="--seconds 60"'
	@echo 'make bench-impact     the same ordinary jobs without and with trainers; half an hour; IMPACT="--load 0.9"'
	@echo 'make bench-commands   what the plugin costs ordinary sbatch and srun; 2 minutes'
	@echo 'make bench-slurmctld  what the controller costs slurmctld on 5,000 nodes; 11 minutes'
	@echo 'make bench-scale      what a turn of the controller costs on 10,000 nodes in memory; 3 minutes'
	@echo 'make paper            the experiments of the paper on traces of Summit; an hour or two'
	@echo 'make bench-planner    how long plans take, compared with the formulation of the paper'
	@echo 'make bench-elastic    how long trainers stand still when nodes come and go, compared with stock torchrun'
	@echo 'make exactly-once     samples lost and trained again, by framework, as nodes come and go; half an hour; ONCE="--seed 7"'
	@echo 'make plugin           builds the SPANK plugin for the Slurm installed here'
	@echo 'make install          installs the plugin: DESTDIR= PREFIX=; activates nothing'
	@echo 'make deb, make rpm    packages of plugin, elements and controller, in build/packages: docs/roll-out.md'
	@echo 'make packages         makes Debian packages in a rootfs; installs, upgrades, removes them there'
	@echo 'make machine          tests packages and elements under systemd and cgroup v2, in User-mode Linux'
	@echo 'make wheel            makes sdist and wheel in build/dist, and tries the wheel in an environment of its own'
	@echo 'make setup            installs what the others need (they call it); make clean undoes it'

setup:
	@scripts/setup

plugin: setup
	@scripts/step 'building the plugin' $(MAKE) --no-print-directory -C slurm_plugin

demo: plugin
	@$(BIN)/python scripts/run demo

examples: plugin
	@$(BIN)/python scripts/run examples $(EXAMPLES)

# mkdocs-material recommends its successor at each start. With --quiet a broken link is no error.
docs: export NO_MKDOCS_2_WARNING = 1
docs: setup
	@scripts/step 'building the documentation' $(BIN)/mkdocs build

lint: docs style

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

build/promtool:
	@scripts/step 'fetching promtool' scripts/fetch-promtool

test: export WERROR = 1
test: plugin build/promtool
	@$(BIN)/python scripts/run lanes $(LANES)

nightly: plugin build/promtool
	@$(BIN)/python scripts/run lanes --within 300 nightly

matrix: setup
	@scripts/matrix

matrix-torch: setup
	@scripts/matrix-torch $(PAIRS)

matrix-full: setup
	@scripts/matrix -m slurm

bench-planner: setup
	@$(BIN)/python scripts/run bench-planner

bench-elastic: setup
	@$(BIN)/python scripts/run bench-elastic

exactly-once: setup
	@$(BIN)/python scripts/run exactly-once $(ONCE)

bench-commands: plugin
	@$(BIN)/python scripts/run bench-commands

bench-impact: plugin
	@$(BIN)/python scripts/run bench-impact $(IMPACT)

bench-scale: setup
	@$(BIN)/python scripts/run bench-scale

bench-slurmctld: setup
	@$(BIN)/python scripts/run bench-slurmctld

chaos: plugin
	@$(BIN)/python scripts/run chaos $(CHAOS)

failover: plugin
	@$(BIN)/python scripts/run chaos --failover 20 $(FAILOVER)

launch-corpus: plugin
	@scripts/apart $(BIN)/python scripts/run launch-corpus $(LAUNCH)

page: setup
	@$(BIN)/python scripts/run page

frameworks: plugin
	@scripts/apart $(BIN)/python -m pytest -p no:cacheprovider -q -s tests/frameworks

slurm-suite: plugin
	@$(BIN)/python scripts/run slurm-suite --source $(or $(SOURCE),$(error SOURCE: where Slurm's source lies))

fuzz: setup
	@$(BIN)/python scripts/run fuzz $(FUZZ)

paper: setup
	@$(BIN)/python scripts/run paper

install:
	@$(MAKE) --no-print-directory -C slurm_plugin DESTDIR='$(DESTDIR)' \
		PREFIX='$(PREFIX)' install

deb rpm:
	@$(MAKE) --no-print-directory -C packaging $@

packages:
	@packaging/try

machine:
	@packaging/machine/run $(MACHINE)

wheel:
	@packaging/try-wheel

clean:
	rm -rf build .venv .cache demo-output chaos-output bench-impact-output
