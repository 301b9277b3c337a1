// Package abi is the layout of libibverbs' public structures on 64-bit Linux, as Go structures.
//
// The comment of a type names its C struct, that of a field its C field: of a union or a struct in
// the struct the path. Fields that nothing here uses are _. Constants are those that package verbs,
// whose enumerations have libibverbs' numbers, lacks; their comments name the C constant.
// TestLayout compares all of this, verbs' constants too, with what a C compiler makes of the
// header, for amd64 and for arm64, where a pthread_mutex_t has other sizes.
//
// All addresses are uintptr: what they point to lies outside of the Go heap or is pinned, and the
// structures themselves are to lie where C may read and write them. An int or an enum of C has 32
// bits. What goes over the wire, GIDs and immediate data, is big-endian.
//
// Functions that are inline in the header are operations, which are called through pointers:
// Context.Ops, Context.Op, and those of a CQEx.
package abi
