// Package launch starts and supervises the ranks of a job on this host: `tagmatch run` is a thin
// command around it, and package launch of the top level gives Self to programs that start
// themselves.
//
// Concurrency: Run and Self may be called from any goroutine, also concurrently; each returns when
// all its ranks have ended. One goroutine of a Run owns its state; the others send it events. Call
// WatchParent and PinSelf at the start of a program.
//
// Every rank is a process group of its own. It ends with its first process: what is left of the
// group is killed, and whoever else holds the rank's end of its link. On another host it is a
// session instead, killed as far as pkill(1) is there. When the launcher itself is killed, Linux
// kills the first processes of the ranks (parent-death signal). Programs behind them see the end of
// the link: those that have joined the job are told of an Abort, and others end by WatchParent.
package launch
