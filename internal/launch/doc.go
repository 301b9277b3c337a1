// Package launch starts the ranks of a job on this host and looks after them: `tagmatch run` is a
// thin command around it, and examples use Self to become several ranks when they are started
// plainly.
//
// Concurrency: Run and Self may be called from any goroutine, also several at once; each returns
// when all its ranks have ended. One goroutine of a Run owns its state; the others send it events.
// WatchParent and PinSelf are for the start of a program.
//
// Every rank is a process group of its own. It ends with its first process: what that leaves behind
// is killed. When the launcher itself is killed, Linux kills the ranks (parent-death signal), and
// what they have started sees the end of the inherited link (see WatchParent).
//
// This package carries no compatibility promise yet.
package launch
