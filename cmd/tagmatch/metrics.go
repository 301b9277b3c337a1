package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/inspect/meters"
)

const metricsHelp = `Metrics has the counters of all ranks on this host: of the same user, or of all users
for root. No program has to be changed, and no rank opens a port. It prints them once,
or serves them to Prometheus:

  tagmatch metrics --listen :9400

  scrape_configs:
    - job_name: tagmatch
      honor_labels: true   # job is the name of the job in tagmatch ps
      static_configs: [{targets: ["host:9400"]}]

Each number has the labels job, rank and program. A rank that does not answer within a
second has tagmatch_up 0 and nothing else. Alert rules and a dashboard for Grafana
are in the source, in metrics/. A container with a network of its own needs an exporter
of its own. Whoever reaches the address can read the numbers: with --listen
127.0.0.1:9400 only this host can.

Exit code: 0, also where no rank runs; 1 if the address cannot be used.`

func newMetrics() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:   "metrics",
		Short: "Print the counters of the ranks on this host, or serve them to Prometheus",
		Long:  metricsHelp,
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if listen == "" {
				return failed(writeMetrics(contextOf(c), c.OutOrStdout()))
			}
			return failed(serveMetrics(contextOf(c), listen, c.OutOrStdout()))
		},
	}
	c.Flags().StringVar(&listen, "listen", "", "serve them at http://ADDRESS/metrics, such as :9400, until a signal comes")
	return c
}

// writeMetrics writes the counters of all ranks as they are now.
func writeMetrics(ctx context.Context, w io.Writer) error {
	names, err := doors.Find()
	if err != nil {
		return err
	}
	return meters.Write(w, measured(doors.Metrics(ctx, names)))
}

// measured is the numbers of ranks, also of those that have not answered.
func measured(list []inspect.Metrics) []meters.Rank {
	ranks := make([]meters.Rank, len(list))
	for i, m := range list {
		values, err := meters.Parse(m.Values)
		if m.Silent != "" || err != nil {
			values = meters.Values{meters.Up: 0}
		} else {
			values[meters.Up], values[meters.Started] = 1, float64(m.Started.UnixMilli())/1e3
		}
		ranks[i] = meters.Rank{Job: m.Job, Program: m.Program, Rank: m.Rank, Values: values}
	}
	return ranks
}

// Bounds of what others can cost the exporter.
const (
	timeForHeaders = 5 * time.Second
	timeForAnswer  = time.Minute
)

// serveMetrics serves until ctx ends, or a signal comes.
func serveMetrics(ctx context.Context, listen string, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w: give an address that is free, such as :9400", listen, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", &exporter{})
	server := http.Server{Handler: mux, ReadHeaderTimeout: timeForHeaders, WriteTimeout: timeForAnswer, IdleTimeout: timeForAnswer}
	fmt.Fprintf(out, "serving http://%s/metrics\n", l.Addr())
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// exporter answers one scrape at a time: a rank answers few at once.
type exporter struct{ one sync.Mutex }

func (x *exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	if err := x.scrape(r.Context(), &b); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", meters.ContentType)
	_, _ = w.Write(b.Bytes()) // who has gone needs no answer
}

// scrape waits for its turn. Who takes long to read what it writes holds up nobody.
func (x *exporter) scrape(ctx context.Context, b *bytes.Buffer) error {
	x.one.Lock()
	defer x.one.Unlock()
	if err := ctx.Err(); err != nil {
		return err // nobody is there any more
	}
	return writeMetrics(ctx, b)
}
