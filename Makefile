# make demo and make test are all that is needed; both install what is missing.
.PHONY: all demo test test-kube lint bench bench-services bench-mesh bench-splice compat soak faults clean

all:
	cargo build --release

# Envoy in front of nginx, with and without Sidestep: about three minutes.
demo:
	tools/install-deps demo
	cargo build --release
	mkdir -p target/demo
	target/release/sidestep lab run demo --out target/demo/demo.json --html target/demo/demo.html $(ARGS)

# Every test.
test:
	tools/test $(ARGS)

# Services of a real Kubernetes control plane, next to kube-proxy, and the mesh of Istio: tests/kube. Their programs are
# built from Go modules the first time, which takes a quarter of an hour. ARGS="--quick", ARGS="--only semantics --seed 7".
test-kube:
	tools/install-deps kube
	cargo build --release -p sidestep-cli -p sidestep-agent
	tests/kube/run.py $(ARGS)

# Formatting and clippy, of which no complaint may be left.
lint:
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings

# The tables of docs/PERFORMANCE.md; ROWS="wrk-nginx-64 stream" takes some of them.
bench:
	tools/install-deps bench
	cargo build --release
	tools/bench $(ROWS)

# What Kubernetes Services cost, beside kube-proxy's rules: docs/services-performance.md. Needs root; under half an hour,
# or ten minutes more where `make test-kube` has built kube-proxy.
bench-services:
	tools/install-deps bench-services
	cargo build --release -p sidestep-bench -p sidestep-agent
	tools/bench-services $(ARGS)

# What it costs to lead the traffic of two pods through their Envoys, by iptables and by Sidestep:
# docs/mesh-performance.md. Needs root. ARGS="--quick" for a minute or two.
bench-mesh:
	tools/install-deps bench-mesh
	cargo build --release
	cargo build --release -p sidestep-agent
	tools/bench-mesh $(ARGS)

# What splicing local sockets gains and loses, by message size: docs/splice.md. Needs root; ten minutes. ARGS="--write".
bench-splice:
	tools/install-deps bench-services
	cargo build --release -p sidestep-bench -p sidestep-cli -p sidestep-agent
	tools/bench-splice $(ARGS)

# Real programs and the test suites of others, in every mode: docs/COMPATIBILITY.md. ARGS="--part suites" for a part.
compat:
	tools/install-deps compat
	cargo build --release
	tools/compat $(ARGS)

# One hour of mixed load, after which nothing may have grown; ARGS="--seconds 600" for less.
soak:
	tools/install-deps test
	cargo build --release
	python3 tests/soak/run.py $(ARGS)

# Every fault: system calls that fail, releases, surroundings; then 1000 rounds of kills, stops and restarts under load.
# An hour, on two processors.
faults:
	tools/install-deps test
	cargo build --release
	python3 tests/faults/run.py
	python3 tests/chaos/run.py --rounds 750
	python3 tests/chaos/run.py --rounds 250 --connections 64

clean:
	cargo clean
