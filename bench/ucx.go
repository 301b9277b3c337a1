package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// perftest is UCX's benchmark program, Debian package ucx-utils.
const perftest = "ucx_perftest"

// sample is one measurement, in the terms of both programs.
type sample struct {
	LatUs    float64 `json:"p50_us,omitempty"`
	MBs      float64 `json:"mb_s,omitempty"`
	CPUPerGB float64 `json:"cpu_s_per_gb,omitempty"`
}

// findUCX tells where the program is, or how to get it.
func findUCX() (string, error) {
	path, err := exec.LookPath(perftest)
	if err != nil {
		return "", fmt.Errorf("%s is not installed: apt-get install ucx-utils", perftest)
	}
	return path, nil
}

// ucxEnv chooses UCX's transports as ours are chosen.
func ucxEnv(device, tls string) []string {
	if tls == "" {
		tls = "posix,cma,self"
		if device == "tcp" {
			tls = "tcp,self"
		}
	}
	env := append(os.Environ(), "UCX_TLS="+tls, "UCX_WARN_UNUSED_ENV_VARS=n")
	if device == "tcp" {
		env = append(env, "UCX_NET_DEVICES=lo")
	}
	return env
}

// ucxRun measures one size with a server and a client, pinned to processors 0 and 1 of cpus.
func ucxRun(ctx context.Context, path string, j job, env []string) (sample, error) {
	port, err := freePort()
	if err != nil {
		return sample{}, err
	}
	server := exec.CommandContext(ctx, path, "-p", port, "-c", strconv.Itoa(j.cpus[0]))
	server.Env = env
	var serverOut, out, stderr bytes.Buffer
	server.Stdout, server.Stderr = &serverOut, &serverOut
	if err := server.Start(); err != nil {
		return sample{}, err
	}
	// The server serves one client and ends. Where no client came, it is told to.
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	if err := awaitListener(ctx, port); err != nil {
		return sample{}, fmt.Errorf("%s server: %w: %s", perftest, err, &serverOut)
	}
	client := exec.CommandContext(ctx, path, "127.0.0.1", "-t", ucxTests[j.test], "-s", strconv.Itoa(j.size),
		"-n", strconv.Itoa(j.iters), "-w", strconv.Itoa(j.iters/10+1), "-p", port, "-c", strconv.Itoa(j.cpus[1]), "-f", "-v")
	client.Env, client.Stdout, client.Stderr = env, &out, &stderr
	if err := client.Run(); err != nil {
		return sample{}, fmt.Errorf("%s: %w: %s%s", perftest, err, &stderr, &out)
	}
	_ = server.Wait()
	s, err := parseUCX(j.test, j.size, out.String())
	if err != nil {
		return s, err
	}
	if bytes := float64(j.size) * float64(j.iters); j.test == "bw" && bytes > 0 {
		// Start and warm-up are in it too: a tenth of the messages, and some 20 ms.
		s.CPUPerGB = (cpuOf(server) + cpuOf(client)).Seconds() / (bytes * 1.1 / 1e9)
	}
	return s, nil
}

// ucxTests are the tag-matching tests that do what ours do.
var ucxTests = map[string]string{"lat": "tag_lat", "bw": "tag_bw"}

func cpuOf(c *exec.Cmd) time.Duration {
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime()
}

// parseUCX reads the output of -f -v: a line of names, a line of numbers.
//
//	iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
//	20000,6.448,6.661,6.661,1.15,1.15,150125,150125
//
// Bandwidth is taken from the message rate: the program's own is in units of 2^20 bytes.
func parseUCX(test string, size int, out string) (sample, error) {
	var names []string
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		switch {
		case len(fields) > 1 && fields[0] == "iterations":
			names = fields
		case names != nil && len(fields) == len(names):
			return ucxSample(test, size, names, fields)
		}
	}
	return sample{}, fmt.Errorf("%s printed no result line that this program understands (it is written for version 1.13): %q", perftest, out)
}

func ucxSample(test string, size int, names, fields []string) (sample, error) {
	want := map[string]string{"lat": "50.0_percentile_lat", "bw": "overall_mr"}[test]
	for i, name := range names {
		// Bandwidth tests call their first columns overhead in some versions; the rates have one
		// name in all.
		if name != want {
			continue
		}
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil || v <= 0 {
			return sample{}, fmt.Errorf("%s: %s is %q, not a positive number", perftest, name, fields[i])
		}
		if test == "lat" {
			return sample{LatUs: v}, nil
		}
		return sample{MBs: v * float64(size) / 1e6}, nil
	}
	return sample{}, fmt.Errorf("%s: no column %s among %s", perftest, want, strings.Join(names, ","))
}

// freePort asks the kernel for a port and lets it go again; the server takes it a moment later.
func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, err
}

// awaitListener waits until somebody listens at port. It looks at the kernel's table instead of
// connecting, because the server would take a connection for its one client.
func awaitListener(ctx context.Context, port string) error {
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	want := []byte(fmt.Sprintf(":%04X 00000000:0000 0A", n))
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			return err
		}
		if bytes.Contains(table, want) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("it does not listen")
		case <-tick.C:
		}
	}
}
