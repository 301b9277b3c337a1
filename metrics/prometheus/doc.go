// Package prometheus gives the counters of a World to Prometheus, in a program that serves metrics
// already. Its names are those of `tagmatch metrics`, which needs nothing of a program and has all
// ranks of a host.
//
//	prometheus.MustRegister(tagmatch.NewCollector(w)) // import tagmatch ".../metrics/prometheus"
//
// Labels are job, the name in `tagmatch ps`, rank and program. Where Prometheus does not honor
// labels of its targets, job becomes exported_job. A module of its own, so that who uses tagmatch
// has no client library among its dependencies.
package prometheus
