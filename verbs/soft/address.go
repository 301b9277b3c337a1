package soft

// deviceID names a device of a job: random, made at Open.
type deviceID [16]byte

// address is where and how a device can be reached, decoded from Device.Address.
type address struct {
	id   deviceID
	host [16]byte // same value: same host, and shared memory may work (hash of boot id and of the namespaces that matter)
	rank uint32   // for error messages
	pid  uint32
	shm  string   // abstract Unix socket; empty: no shm
	tcp  []string // host:port candidates; empty: no tcp
	loop uint64   // fabric of the loop wire; 0: none
}
