//go:build tools

// Package tools names the programs that are built, so that go.mod and go.sum cover what they need.
package tools

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
