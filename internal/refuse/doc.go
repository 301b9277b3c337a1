// Package refuse makes the kernel refuse system calls to this process, as containers do, or
// descriptors, as full tables do, for tests. It works on Linux.
package refuse
