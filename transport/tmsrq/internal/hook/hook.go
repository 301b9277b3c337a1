// Package hook is what package tmsrq shows to package tmsrqtest and to nobody else.
package hook

// CountFrom is set by package tmsrq; tr is a *tmsrq.Transport, which this package cannot name.
var CountFrom func(tr any, n uint16)
