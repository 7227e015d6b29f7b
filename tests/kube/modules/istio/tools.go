//go:build tools

// Package tools names the programs that are built, so that go.mod and go.sum cover what they need.
package tools

import (
	_ "istio.io/istio/pilot/cmd/pilot-agent"
	_ "istio.io/istio/pilot/cmd/pilot-discovery"
)
