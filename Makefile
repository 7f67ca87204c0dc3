# `make help` says what there is. Everything that is built lies in build/, .venv/ and .cache/.
PREFIX ?= /usr/local
DESTDIR ?=
BIN := .venv/bin

.PHONY: help setup plugin demo lint test matrix install clean

help:
	@echo 'make demo     a private Slurm cluster, two trainers in its holes; about 4 minutes'
	@echo 'make test     all checks and tests, those against a real Slurm included'
	@echo 'make matrix   the Slurm tests on newer Slurms, each in a rootfs of its own'
	@echo 'make plugin   the SPANK plugin and the cli_filter, for the Slurm that is installed'
	@echo 'make install  the plugin: DESTDIR= PREFIX=; activates nothing'
	@echo 'make setup    what all of these need (they call it); make clean undoes it'

setup:
	@scripts/setup

plugin: setup
	@$(MAKE) --no-print-directory -C slurm_plugin all check sanitize

demo: plugin
	@$(BIN)/python scripts/demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: plugin lint
	$(BIN)/python -m pytest

matrix: setup
	@scripts/matrix

install:
	@$(MAKE) --no-print-directory -C slurm_plugin DESTDIR='$(DESTDIR)' \
		PREFIX='$(PREFIX)' install

clean:
	rm -rf build .venv .cache demo-output
