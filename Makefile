# Everything is bounded in time and needs only Go, make, a C compiler for the race detector, and
# real servers for the tests, which scripts/deps installs if they are missing. Built programs are
# kept in .bin/.

# Change these on the command line, as in: make fuzz FUZZTIME=5m
TIMEOUT   ?= 10m
FUZZTIME  ?= 10s
BENCH     ?= .
BASE      ?= origin/main
OLDEST    ?= 1.25.0
FLAGS     ?=
COUNT     ?= 1
SOAK      ?= . ./memstore
SOAKCOUNT ?= 50
SEEDS     ?= 5000
TIME      ?= 5m
SEED      ?= 0
JOBS      ?= 2
RESULTS   ?=
NAMES     ?= 1000000
STORE     ?=
STORES    := sqlite redis quorum pg mysql etcd zk sentinel cluster
PEERS     := redislock redsync rueidislock etcd-mutex zk-lock pg-advisory
VERSION   ?=
TWICE     ?=
PLATFORMS ?= windows/amd64

# SQLite is C code translated to Go. The race detector finds nothing in it, and makes it many times slower.
RACE := -race -gcflags=modernc.org/libc=-race=false -gcflags=modernc.org/sqlite/lib=-race=false

# By default, a process with the race detector sleeps for a second before it exits.
export GORACE := atexit_sleep_ms=0

# The packages whose tests take longest are started first. Most tests wait most of the time.
SLOWEST := ./redisstore ./pgstore ./mysqlstore ./quorum ./zkstore ./etcdstore ./cmd/holdfast ./etcdstore/internal/clustertest ./sqlitestore ./redisstore/goredis

# Large tests that are left out with the race detector.
NORACE := $(shell grep -rl --include='*_test.go' '^//go:build !race$$' .)

# The tools are not in the workspace, so that their requirements do not affect those of the library.
TOOLS := GOWORK=off go build -C tools -o ../.bin/ tool

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help test check tools deps compile check-fmt vet staticcheck modules workflows test-race test-norace test-faults testreport platforms oldest-go vuln apidiff release-check fmt examples fuzz bench bench-compare bench-docs figures microbench hunt faults soak cover dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# On a new machine the servers are downloaded while the tests are compiled.
test: ## all tests, on real servers
	@printf '%s\n' deps compile | xargs -P 2 -I{} $(MAKE) --no-print-directory {}
	@$(MAKE) --no-print-directory test-race test-norace test-faults
	@echo "== all passed"

check: check-fmt vet staticcheck modules workflows platforms release-check ## formatting, go vet, staticcheck, module files, workflows, a release
	@echo "== all checked"

deps: ## install what the tests need
	@echo "== servers"
	@scripts/deps

tools:
	@echo "== tools: staticcheck, gofumpt, actionlint, govulncheck, apidiff"
	@$(TOOLS)

check-fmt: tools
	@echo "== gofumpt: every file is formatted"
	@files=$$(.bin/gofumpt -l .) && if [ -n "$$files" ]; then \
		echo "$$files"; echo "not formatted; run: make fmt"; exit 1; fi

vet:
	@echo "== go vet, all modules"
	@go vet work

staticcheck: tools
	@echo "== staticcheck, all modules"
	@.bin/staticcheck work

modules: deps
	@echo "== modules: tidy, each complete by itself, the root without requirements"
	@scripts/check-modules

workflows: tools
	@echo "== actionlint: GitHub workflows; actions are pinned by commit"
	@.bin/actionlint
	@! grep -nE 'uses:' .github/workflows/*.yml | grep -vE 'uses: [^@]+@[0-9a-f]{40} # v[0-9.]+$$' || \
		{ echo "name the commit of each action, and its version in a comment"; exit 1; }

compile:
	@echo "== compile all tests, so that the compiler does not slow them down"
	@go list -export -test -deps $(RACE) work >/dev/null

test-race: deps testreport
	@echo "== go test -race, all modules; four packages at a time"
	@.bin/testreport $(RACE) -vet=off -ldflags=-w -p=4 -parallel=4 -count=$(COUNT) -timeout=$(TIMEOUT) $(SLOWEST) $$(go list work | grep -v -e /internal/tools/release$$ -e /test/faults$$)

test-norace: deps testreport
	@echo "== without -race: large tests, two packages at a time"
	@.bin/testreport -vet=off -p=2 -count=$(COUNT) -timeout=$(TIMEOUT) \
		-run "^($$(grep -ho '^func Test[A-Za-z0-9]*' $(NORACE) | cut -c6- | paste -sd'|'))$$" $(sort $(dir $(NORACE)))

test-faults: deps testreport
	@echo "== faults, alone: they measure how soon a client recovers"
	@.bin/testreport $(RACE) -vet=off -ldflags=-w -parallel=4 -count=$(COUNT) -timeout=$(TIMEOUT) ./test/faults

testreport:
	@go build -o .bin/ ./internal/tools/testreport

# These packages have the most files for one platform. GitHub vets all packages on macOS and Windows.
platforms:
	@for p in $(PLATFORMS); do \
		echo "== vet for $$p"; \
		GOOS=$${p%/*} GOARCH=$${p#*/} go vet ./cmd/holdfast/... ./sqlitestore ./internal/testing/servers || exit 1; \
	done

# An observer costs 9 allocations with Go 1.25 and 8 with Go 1.26, which is what the skipped test demands.
oldest-go: ## vet the modules that support the oldest Go with it, and test the core
	@for mod in $$(git grep -lE '^go $(OLDEST:.0=)(\.0)?$$' -- '*go.mod'); do \
		echo "== go$(OLDEST) vet, $$mod"; \
		GOWORK=off GOTOOLCHAIN=go$(OLDEST) go -C "$$(dirname "$$mod")" vet ./... || exit 1; \
	done
	@GOWORK=off GOTOOLCHAIN=go$(OLDEST) go test -timeout=$(TIMEOUT) -skip CostsNoAllocation . ./store/... ./storetest/... ./memstore/... ./quorum/...

vuln: tools ## known vulnerabilities that the code can reach, in all modules; needs vuln.go.dev
	@.bin/govulncheck work

apidiff: tools ## how the API of each module differs from the last release
	@scripts/apidiff

release-check: ## release the working tree into a temporary folder, and use it as users will
	@go test -timeout=$(TIMEOUT) ./internal/tools/release
	@go run ./internal/tools/release check

fmt: tools ## format every file
	@echo "== gofumpt"
	@.bin/gofumpt -l -w .

examples: ## run all examples, one line of proof each; STORE=redis://127.0.0.1:6379 for another store
	@for name in registration stock balance cron leader pause; do \
		out=$$(HOLDFAST_STORE='$(STORE)' go run ./examples/$$name 2>&1) || { echo "$$out"; exit 1; }; \
		echo "$$out" | tail -n 1; \
	done

fuzz: ## run each fuzz target for FUZZTIME (10s)
	@scripts/fuzz $(FUZZTIME)

bench: deps ## Holdfast against its peers, in minutes; FLAGS="-run 'P1|P2'", results in .bin/bench
	@go run ./bench $(FLAGS)

bench-compare: ## speed of some workloads against that of the commit BASE (origin/main), in minutes
	@scripts/bench-compare '$(BASE)' -run 'P1|P2|P3|P5|P10|P11' -who holdfast -time 300ms -handoffs 60

bench-docs: deps ## measure in ten minutes on a quiet machine, and put the figures into the pages
	@go run ./bench -time 300ms -handoffs 60 -window 10s -hold 20s -out docs/bench -docs . \
		-run 'P1|P2|P3|P4|P4shapes|P5|P6|P7|P8|P8minute|P9etcd|P9zk|P10|P10mysql|P10pg|P11|P12'

figures: ## charts and figures of the pages from docs/bench/bench.json, without measuring
	@go run ./bench -render docs/bench/bench.json -out docs/bench -docs . >/dev/null

microbench: ## benchmarks of the root module; BENCH is a pattern, COUNT repeats
	@echo "== go test -bench $(BENCH), $(COUNT) time(s)"
	@go test -run '^$$' -bench '$(BENCH)' -benchmem -count=$(COUNT) -timeout=30m ./...

hunt: deps ## random calls under random faults; STORE=sqlite (or redislock), TIME=5m, SEED=0 (random), FLAGS="-hunt-fault 'server stopped'"
	@go test -run '^TestHunt$$' -v -count=1 -timeout=0 ./test/faults -hunt-store '$(or $(STORE),sqlite)' \
		-hunt-time $(TIME) -hunt-seed $(SEED) -hunt-json '$(if $(RESULTS),$(abspath $(RESULTS)))' $(FLAGS)

faults: deps ## a hunt of TIME (5m) on each store and each other library, or STORE=redislock, with all faults in turn, JOBS (2) at a time; the tables of docs/faults.md
	@printf '%s\n' $(or $(STORE),$(STORES) $(PEERS)) | xargs -P $(JOBS) -I{} sh -c 'echo "== {}: progress in .bin/hunt-{}.log"; \
		$(MAKE) --no-print-directory hunt STORE={} TIME=$(TIME) SEED=$(or $(filter-out 0,$(SEED)),1) RESULTS=docs/faults FLAGS="-hunt-fault each" >.bin/hunt-{}.log 2>&1; \
		echo "== {}: exit code $$?, $$(grep -c "is violated" .bin/hunt-{}.log) violations"'
	@go run ./test/faults/matrix docs/faults.md docs/faults

soak: deps testreport ## core and memstore SOAKCOUNT (50) times, then a hunt of TIME (5m) on each store
	@echo "== go test -race -count=$(SOAKCOUNT) $(SOAK)"
	@.bin/testreport $(RACE) -count=$(SOAKCOUNT) -timeout=60m $(SOAK)
	@echo "== mutants of six stores, which a model must find"
	@.bin/testreport -tags mutants -run 'Mutants.*AreFound' -timeout=60m -p=1 ./memstore ./quorum ./redisstore ./pgstore ./mysqlstore ./sqlitestore
	@echo "== $(SEEDS) random histories of the core"
	@.bin/testreport -run RandomHistories -timeout=60m . -seeds $(SEEDS)
	@for store in $(STORES); do \
		echo "== hunt on $$store for $(TIME)"; \
		$(MAKE) --no-print-directory hunt STORE=$$store TIME=$(TIME) SEED=$(SEED) || exit 1; \
	done
	@echo "== 64 clients on PostgreSQL for a minute"
	@.bin/testreport -run ManyClients -timeout=10m ./pgstore -long 1m
	@echo "== 100,000 leases on Redis, which hangs for 16s, and Close of 150,000"
	@.bin/testreport -run AHangCosts\|CloseReleasesMany -timeout=10m ./redisstore -leases 100000
	@echo "== 600 clients wait for one name on etcd; 1,500 readers and 1,000 waiters on ZooKeeper"
	@.bin/testreport -run ManyClientsWait -timeout=10m ./etcdstore -waiters 600
	@.bin/testreport -run ManyClientsUse -timeout=10m ./zkstore -readers 1500 -waiters 1000
	@echo "== $(NAMES) names on ZooKeeper"
	@.bin/testreport -run 'FaultsOfASingleServer/many_names' -timeout=60m ./zkstore -names $(NAMES)

cover: deps testreport ## coverage of all modules, in .bin/cover.html
	@echo "== coverage, all modules"
	@.bin/testreport -coverprofile=.bin/cover.out -coverpkg=work -timeout=$(TIMEOUT) work
	@go tool cover -html=.bin/cover.out -o .bin/cover.html
	@go tool cover -func=.bin/cover.out | tail -n 1

dist: ## archives of the command for all platforms, in .bin/dist; VERSION=v0.1.0, TWICE=1 compares two builds
	@rm -rf .bin/dist && go run ./internal/tools/release dist '$(VERSION)' .bin/dist
	@$(if $(TWICE),again=$$(mktemp -d) && trap 'rm -rf "$$again"' EXIT && \
		GOCACHE="$$again/cache" go run ./internal/tools/release dist '$(VERSION)' "$$again/dist" && diff -r .bin/dist "$$again/dist")

clean: ## remove what make built
	@rm -rf .bin
