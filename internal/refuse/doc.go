// Package refuse makes the kernel refuse system calls to this process, as containers do to theirs,
// for tests of what a program does then. It works on Linux.
package refuse
