# Everything a developer or CI calls. `make help` lists the targets. Each target installs what it lacks (scripts/setup.sh, apt,
# as root) and uses no network once that is done.

GO         ?= go
KERNELS    ?= 6.1 6.12 next
DEMOKERNEL ?= 6.12
FUZZTIME   ?= 1000000x
IMAGE      ?= localhost/fabric-agent:latest
TOOLS      ?= localhost/fabric-tools:latest
DESTDIR    ?=
CNI_BIN    ?= /opt/cni/bin
PREFIX     ?= /usr/local
VERSION    ?= $(shell scripts/version.sh)

# main.version is read by the programs that have one. No VCS stamp: it would fail in a clone owned by another user.
LDFLAGS := -s -w -buildid= -X main.version=$(VERSION)
# For a process that lives for milliseconds: the kernel clears a huge page as a whole, for the little of it that is used. This
# is GODEBUG=disablethp=1 (go doc runtime) from the first page on; //go:debug does not know the setting.
ONESHOT := -X runtime.godebugDefault=disablethp=1
TOOL    := $(GO) tool -modfile=scripts/tools/go.mod
SETUP   := scripts/setup.sh base
export GO
# The same for every program and test, so that the compiler makes each package once. test-race.sh alone needs cgo.
export GOFLAGS := $(filter-out -buildvcs=% -trimpath,$(GOFLAGS)) -buildvcs=false -trimpath
export CGO_ENABLED = 0

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build quick test gate test-full test-unit test-race test-lab e2e e2e-oldest image bench-cluster bench-controlplane lint check
.PHONY: site vuln outdated fuzz bench demo cover clean install generate release

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  KERNELS=\"$(KERNELS)\"  DEMOKERNEL=$(DEMOKERNEL)  FUZZTIME=$(FUZZTIME)  DESTDIR=$(DESTDIR)  CNI_BIN=$(CNI_BIN)"

build: ## static binaries of every program, to bin/
	@$(SETUP)
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...
	$(GO) build -ldflags '$(LDFLAGS) $(ONESHOT)' -o bin/ ./cmd/fabric

quick: ## while you work: build, vet, lint and unit tests of what has changed (BASE=commit)
	@$(SETUP) lint test browser
	@scripts/quick.sh $(BASE)

test: ## what to run first: unit tests, and the plugin on Linux 6.12 in the lab, a sample of each of its tests
	@$(SETUP) test
	@scripts/stages.sh "fetch-lab test-unit" "test-lab-sample"
	@sed -n 's/^lab: a sample/Shown: unit tests; the plugin/p' build/stages/test-lab-sample.log
	@echo 'make gate: linters, race detector, failpoints, fuzzing, Kubernetes, kernels 6.1, 6.12 and next; what is long takes turns (30 min)'
	@echo 'make test-full: all of it at once: every test and cell on every kernel, long fuzzing (a night)'

# FABRIC_SEED picks the share of what is too long for each commit (internal/testkit/share): the commit's hash.
gate: export FABRIC_SEED ?= $(shell git -c safe.directory='*' rev-parse HEAD 2>/dev/null)
gate: ## everything else that a change can break: lint, race detector, fuzzing, Kubernetes, three kernels; long ones in turn
	@$(SETUP) lint race site
	@echo "gate: the share of FABRIC_SEED=$(FABRIC_SEED)"
	@scripts/stages.sh "fetch lint site check-binary" "test-race test-slow fuzz-short vuln" "e2e" "test-lab"

test-full: export FABRIC_LAB_FULL = 1
test-full: export LAB_TIMEOUT = 8h
test-full: export E2E_TIMEOUT = 8h
test-full: ## for the night: all of test and gate, with every cell on every kernel, no results of earlier runs, long fuzzing
	@$(SETUP) lint test race site
	@scripts/stages.sh "fetch lint site check-binary" "test-unit test-slow vuln" "test-race" "e2e" "e2e-oldest" "test-lab" "fuzz"

test-unit: ## tests that need no lab, as root also those in network namespaces of this machine
	@$(SETUP) test
	@scripts/test-unit.sh

test-race: ## the race detector where there are goroutines, failpoints, and the long unit tests
	@$(SETUP) test race
	@scripts/test-race.sh

test-lab: ## tests on real kernels with simulated HCAs (KERNELS, LAB_RUN=regexp)
	@$(SETUP)
	@scripts/test-lab.sh $(KERNELS)

image: ## images fabric-agent and fabric-tools for amd64 and arm64, OCI archives in build/ (IMAGE, TOOLS, VERSION)
	@$(SETUP)
	@$(GO) run ./scripts/image/build -name '$(IMAGE)' -tools '$(TOOLS)' -version '$(VERSION)'

release: ## everything that a release has, checked, in build/release (VERSION=v1.2.3): docs/releasing.md
	@$(SETUP)
	@rm -rf build/release
	@$(GO) run ./scripts/release -version '$(VERSION)'

e2e: ## a real Kubernetes: pods get their rails through kubelet, Multus and whereabouts (root; E2E_RUN=regexp)
	@$(SETUP) test
	@scripts/test-e2e.sh '$(E2E_RUN)'

e2e-oldest: export FABRIC_KUBERNETES = 1.34
e2e-oldest: e2e ## e2e with the oldest Kubernetes that has Dynamic Resource Allocation

bench-cluster: ## pods with four rails each at once, beside host-device; by claims, eight each (root; FABRIC_E2E_PODS)
	@$(SETUP)
	$(GO) test -timeout 60m -run '^$$' -bench "Pods|Claims" -benchtime 1x ./integration/cluster

generate: ## what is written from Go: deep copies, CustomResourceDefinitions, pages of docs/reference
	@$(SETUP)
	@scripts/generate.sh

AGENTS ?= 5000
STEADY ?= 10m

bench-controlplane: build ## the API server's work for so many nodes (AGENTS, STEADY)
	@$(SETUP)
	@scripts/cluster-setup.sh
	@mkdir -p build
	$(GO) build -o build/bench-controlplane ./integration/controlplane/bench
	build/bench-controlplane -agents $(AGENTS) -steady $(STEADY)

lint: check ## the linters (scripts/tools/lint) with and without build tags, and the checks
	@scripts/lint.sh

check: ## the checks no linter has: file length, package names, skips, paths, pages, shell scripts, generated files
	@$(SETUP) lint
	@scripts/check-files.sh
	@scripts/check-skips.sh
	@scripts/check-paths.sh
	@scripts/check-words.sh
	@scripts/check-subjects.sh
	@scripts/check-docs.sh
	@scripts/check-shell.sh
	@scripts/generate.sh --check

site: ## the site of docs/ in build/site/VERSION (a release, else main), every link checked
	@$(SETUP) site
	@VERSION='$(VERSION)' scripts/site.sh
	@scripts/site-publish.sh --check

.PHONY: fetch fetch-lab check-binary fuzz-short test-slow test-lab-sample
# One after the other: both install packages where something is missing.
fetch:
	@scripts/lab-setup.sh $(KERNELS) igb traffic
	@scripts/cluster-setup.sh

fetch-lab:
	@scripts/lab-setup.sh 6.12 traffic

test-lab-sample:
	@scripts/test-lab.sh --sample

check-binary: build
	@scripts/check-binary.sh

fuzz-short:
	@$(SETUP)
	@scripts/fuzz.sh 20000x 5

test-slow:
	@$(SETUP) test browser
	@scripts/test-slow.sh

vuln: build ## the modules in our programs against the list of advisories; govulncheck, where its database can be reached
	@$(GO) run ./scripts/vuln bin/fabric bin/fabric-agent bin/fabricctl

outdated: ## what is behind its newest release: modules, tools, versions in scripts (asks the module proxy)
	@$(SETUP)
	@$(GO) run ./scripts/outdated

fuzz: ## every fuzz target for FUZZTIME (executions, or a duration)
	@$(SETUP)
	@scripts/fuzz.sh $(FUZZTIME)

bench: build ## ADD and DEL against the kernel's floor and host-device, in the lab (DEMOKERNEL) and here (root)
	@$(SETUP)
	@scripts/lab-setup.sh $(DEMOKERNEL)
	@FABRIC_LAB_KERNELS=$(DEMOKERNEL) $(GO) run ./integration/lab/bench -plugin bin/fabric

# On a fresh machine the downloads and the compiler take as long as each other: side by side.
demo: ## a node with four rails, two pods, and back, in the lab (DEMOKERNEL)
	@$(SETUP)
	@CGO_ENABLED=0 $(GO) run -trimpath ./integration/lab/demo -build & scripts/lab-setup.sh traffic & \
	  scripts/lab-setup.sh $(DEMOKERNEL) && wait
	@FABRIC_LAB_KERNELS=$(DEMOKERNEL) CGO_ENABLED=0 $(GO) run -trimpath ./integration/lab/demo

cover: ## statement coverage of the tests that need no lab, to build/cover.html
	@$(SETUP) test
	@mkdir -p build
	$(GO) test -coverprofile=build/cover.out -coverpkg=./pkg/...,./internal/...,./plugins/... ./pkg/... ./internal/... ./plugins/... ./cmd/...
	@$(GO) tool cover -html=build/cover.out -o build/cover.html
	@$(GO) tool cover -func=build/cover.out | tail -n 1

clean: ## remove what was built here (the lab's kernels stay in their cache)
	rm -rf bin build

# Renamed into place: a runtime may be executing the old binary, and must never see half of the new one.
install: build ## the plugin, to $(DESTDIR)$(CNI_BIN)
	install -d '$(DESTDIR)$(CNI_BIN)'
	install -m 0755 bin/fabric '$(DESTDIR)$(CNI_BIN)/.fabric.new'
	mv -f '$(DESTDIR)$(CNI_BIN)/.fabric.new' '$(DESTDIR)$(CNI_BIN)/fabric'

.PHONY: install-ctl
install-ctl: build ## fabricctl, also as kubectl plugin, with manual pages and completion, to $(DESTDIR)$(PREFIX)
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/share/bash-completion/completions'
	install -m 0755 bin/fabricctl '$(DESTDIR)$(PREFIX)/bin/.fabricctl.new'
	mv -f '$(DESTDIR)$(PREFIX)/bin/.fabricctl.new' '$(DESTDIR)$(PREFIX)/bin/fabricctl'
	ln -sf fabricctl '$(DESTDIR)$(PREFIX)/bin/kubectl-fabric'
	install -m 0755 scripts/kubectl_complete-fabric.sh '$(DESTDIR)$(PREFIX)/bin/kubectl_complete-fabric'
	bin/fabricctl man '$(DESTDIR)$(PREFIX)/share/man/man1'
	bin/fabricctl completion bash >'$(DESTDIR)$(PREFIX)/share/bash-completion/completions/fabricctl'
