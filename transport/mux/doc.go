// Package mux joins the transports of several devices into one: each rank is reached over the first
// of them that can reach it. So a job can use shared memory inside its hosts and a network device
// between them.
//
// All messages between two ranks take one path, which keeps their order. The tag list is that of
// the first transport that has one; TagList.Covers reports whose messages arrive there
// (docs/tag-matching-offload.md, section 6.4).
//
// This package carries no compatibility promise yet.
package mux
