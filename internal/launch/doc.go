// Package launch starts and supervises the ranks of a job on this host: `tagmatch run` is a thin
// command around it, and examples use Self to become several ranks when they are started without a
// launcher.
//
// Concurrency: Run and Self may be called from any goroutine, also concurrently; each returns when
// all its ranks have ended. One goroutine of a Run owns its state; the others send it events. Call
// WatchParent and PinSelf at the start of a program.
//
// Every rank is a process group of its own. It ends with its first process: remaining processes of
// the group are killed. When the launcher itself is killed, Linux kills the ranks (parent-death
// signal), and their descendants see the end of the inherited link (see WatchParent).
package launch
