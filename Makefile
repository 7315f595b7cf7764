# The commands of Holdfast. Everything else is `go run`, `go test` and what these do.

.PHONY: demo test proof bench screenshots generate build

# The whole product on this machine, with nothing configured; stays until Ctrl-C.
# make demo ARGS='-apps 2 -listen 127.0.0.1:8080'
demo: build
	@scripts/setup npm
	@bin/demo $(ARGS)

# Everything that must hold before a change is merged.
test:
	@scripts/test

# The long form: thousands of histories, fuzzing, and every rule taken out once. Writes docs/proof.md.
# make proof ARGS='-fuzztime 5m'
proof:
	@scripts/setup
	@go run ./scripts/proof $(ARGS)

# The Go code of the templ pages, which is committed.
generate:
	@go tool templ generate

build:
	@go build -o bin/ ./cmd/holdfast ./cmd/demo

# The measurements, each beside its baselines in the same run.
# make bench ARGS='-rounds 5 -json bench.json'
bench:
	@scripts/setup
	@go build -o bin/ ./cmd/holdfast ./cmd/bench
	@bin/bench $(ARGS)

# What people see, as pictures in docs/screenshots: pages of a story that a stage of its own plays.
# make screenshots ARGS='reserve held'
screenshots:
	@scripts/setup
	@go build -o bin/ ./cmd/holdfast ./cmd/demo/screenshots
	@bin/screenshots $(ARGS)
