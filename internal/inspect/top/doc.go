// Package top makes a table of what the ranks of a job do from what they count: two samples of a
// rank give its rates.
//
// Concurrency: it has functions and values only.
package top
