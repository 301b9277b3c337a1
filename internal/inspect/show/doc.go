// Package show writes for people what ranks say of themselves, in 80 columns.
//
// Concurrency: it has functions only.
package show
