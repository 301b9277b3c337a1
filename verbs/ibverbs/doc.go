// Package ibverbs opens RDMA devices through libibverbs, without cgo. A program imports it for its
// effect,
//
//	import _ "github.com/tagmatch/tagmatch/verbs/ibverbs"
//
// which adds the device "rdma" to p2p.Config.Device: a port of an InfiniBand or RoCE device, chosen
// on each host by itself.
//
// The library, libibverbs.so.1, is loaded when a device is opened or looked for. So one binary runs
// with it and without it; but it needs glibc's loader to start.
//
// Environment:
//
//	TAGMATCH_RDMA_PORT  device, or device and port, "mlx5_0" or "mlx5_0:2"
//	TAGMATCH_RDMA_GID   index of the port's GID
//
// The default is the first active port, and on RoCE its first RoCE v2 GID, IPv4 before IPv6, on
// InfiniBand GID 0.
//
// # Memory
//
// What C reads and writes, requests, completions and attributes, lies in one mapping for each
// device, outside of the Go heap. Addresses of Go memory are given to C in regions only, which pin
// it (runtime.Pinner) until they are deregistered.
//
// # Concurrency
//
// As verbs.Device asks: the device has one owner, CompChannel.Wait and Wake any goroutine. One
// goroutine of the device waits for asynchronous events, and one for its lines.
package ibverbs
