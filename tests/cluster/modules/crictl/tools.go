//go:build tools

// Package tools names the program that is built, so that go.sum has what it needs.
package tools

import _ "sigs.k8s.io/cri-tools/cmd/crictl"
