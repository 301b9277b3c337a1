// Package refuse makes the kernel refuse system calls to this process, as containers do, for tests.
// It works on Linux.
package refuse
