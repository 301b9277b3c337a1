// Package hook is what package soft lends to package softtest and to nobody else. Package soft sets
// it; dev is always a *soft.Device, which this package cannot name. "TMO 9" is section 9 of
// docs/tag-matching-offload.md.
package hook
