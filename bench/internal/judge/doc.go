// Package judge compares tagmatch with other programs on one machine, side by side: the rows, the
// samples and which of them count, the figures.
//
// A row has contestants: ours, and the references that its mark speaks of (peers, a limit of bench
// limits, or ours with other flags). They measure one after the other, in another order each round.
// Before and after each sample a probe measures the raw hop between the two processors; a sample
// whose probes disagree is dropped (phase.go), and only samples of one phase of the hop are
// compared.
//
// Concurrency: one goroutine measures; a sample needs the whole machine.
package judge
