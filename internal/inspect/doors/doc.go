// Package doors has the sockets by which ranks are looked into from outside. The door of a rank is
// a Unix socket in the abstract namespace, whose name says of which job and rank it is: so it needs
// no file, ends with its process, and is found in /proc/net/unix. A request is one line, and
// answers are lines of JSON. Who asks is of the same user or root, and so is who answers, by
// SO_PEERCRED.
//
// Only Linux has such sockets. Elsewhere there are no doors.
//
// Concurrency: a Door has one goroutine, and one for each connection, of which there are few at a
// time. Functions may be called by any goroutine.
package doors
