// Package progress is the engine of tagmatch: it matches messages with receives, runs the eager and
// rendezvous protocols, and accounts for the memory of unexpected messages.
//
// Concurrency: every exported method of an Engine and of a Request may be called from any
// goroutine. Inside, one engine is one single-threaded state machine under one mutex; functions
// whose name ends in Locked need it, and so do those of an Op and of all parts of an engine, unless
// they say that they do not. Goroutines wait in package internal/wait, where one of them polls the
// engine for all. Unless Config.Manual is set, one goroutine per engine moves operations while no
// application goroutine polls; it sleeps otherwise.
//
// An engine is made of parts that own their state. A peer has what concerns one rank: its queue,
// its credit, what it is still to be told. An Op does what concerns it alone. sources know whose
// loss ends which receives, contexts which messages are refused, offload what the device has, slots
// and reading who is named to peers and transport, pools what the program has not completed. sink,
// waitEngine and callback are the engine as its transport, those who wait in it and the owner of
// the contexts see it.
//
// "TMO 6.3" is section 6.3 of docs/tag-matching-offload.md: how host and device match together. V1
// to V19 are its invariants.
//
// Buffers: an operation has its buffer from the call until its completion is reported. The engine
// holds the slice itself.
//
// This package carries no compatibility promise yet.
package progress
