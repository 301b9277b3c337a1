// Package hook gives package softtest access to package soft, which sets the functions. dev is
// always a *soft.Device, which this package cannot import. "TMO 9" is section 9 of
// docs/tag-matching-offload.md.
package hook
