package tmsrq

// SetCount starts the count of handled messages at n, for devices whose counters do.
func SetCount(t *Transport, n uint16) { t.skipped = uint32(n) }
