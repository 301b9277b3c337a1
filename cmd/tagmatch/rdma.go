//go:build !nordma

package main

// With the driver the program is linked dynamically. Built with -tags nordma it is static, for
// containers without glibc, and shows no RDMA devices.
import _ "github.com/tagmatch/tagmatch/verbs/ibverbs"
