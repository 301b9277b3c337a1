//go:build !invariants

package coll

const checked = false
