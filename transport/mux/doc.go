// Package mux joins the transports of several devices into one: each rank is reached over the first
// of them that can reach it. So a job can use shared memory inside its hosts and a network device
// between them.
//
// All messages of a pair of ranks go one way, which keeps their order. The tag list of the first
// transport that has one is the tag list of all; TagList.Covers says whose messages come by it
// (docs/tag-matching-offload.md, section 6.4).
//
// This package carries no compatibility promise yet.
package mux
