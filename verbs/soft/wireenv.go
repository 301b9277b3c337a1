package soft

// wireEnv is what a wire gets from the device that opens it.
type wireEnv struct {
	cfg     *Config      // defaults filled in
	self    *address     // id, rank and pid are set; each wire adds where it can be reached, before the address is encoded
	rx      receiver     // the device
	notif   notifier     // where the owner sleeps
	yields  bool         // another wire can take over
	regions *regionTable // the device's registered memory; shm gives it shared memory with rehome before anything is registered
}
