package peers

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

// ucx is ucx_perftest as it comes. Its buffers stay in the cache. Each side of tag_bw waits until
// fewer messages than -O are under way before it starts another; at the end the receiver answers.
type ucx struct{ release string }

func findUCX(ctx context.Context) (Peer, error) {
	if _, err := exec.LookPath(perftest); err != nil {
		return nil, fmt.Errorf("%s is not installed: apt-get install ucx-utils", perftest)
	}
	return ucx{printed(ctx, "Version ", "ucx_info", "-v")}, nil
}

func (ucx) Name() string      { return "ucx" }
func (u ucx) Version() string { return u.release }

// ucxTests are the tag-matching tests that do what ours do, and where their figure is.
var ucxTests = map[string]struct{ name, column string }{
	"lat":     {"tag_lat", "50.0_percentile_lat"},
	"bw":      {"tag_bw", "overall_mr"},
	"rate":    {"tag_bw", "overall_mr"},
	"threads": {"tag_lat", "threads_lat"},
}

func (ucx) Can(j Job) bool {
	test := ucxTests[j.Test].name
	return test != "" && !j.Cold && j.Sliding == (test == "tag_bw")
}

// ucxEnv chooses UCX's transports as ours are chosen.
var ucxEnv = map[string][]string{
	"shm": {"UCX_TLS=posix,cma,self"},
	"tcp": {"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"},
}

// client are the arguments of the process that measures.
func (ucx) client(j Job, iters int, cpu int) []string {
	args := []string{"127.0.0.1", "-t", ucxTests[j.Test].name, "-s", strconv.Itoa(j.Size), "-n", strconv.Itoa(iters),
		"-w", strconv.Itoa(iters/10 + 1), "-c", strconv.Itoa(cpu), "-f", "-v"}
	if j.Window > 0 {
		args = append(args, "-O", strconv.Itoa(j.Window))
	}
	if j.Threads > 1 {
		args = append(args, "-T", strconv.Itoa(j.Threads))
	}
	return args
}

func (u ucx) Command(j Job, iters int, cpus [2]int) string {
	return fmt.Sprintf("%s %s -c %d & %s %s", strings.Join(ucxEnv[j.Device], " "), perftest, cpus[0],
		perftest, strings.Join(u.client(j, iters, cpus[1]), " "))
}

// Run measures with a server and a client.
func (u ucx) Run(ctx context.Context, j Job, iters int, cpus [2]int) (Sample, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	env := append(append(os.Environ(), "UCX_WARN_UNUSED_ENV_VARS=n"), ucxEnv[j.Device]...)
	server := exec.CommandContext(ctx, perftest, "-p", port, "-c", strconv.Itoa(cpus[0]))
	server.Env = env
	var serverOut, out, stderr bytes.Buffer
	server.Stdout, server.Stderr = &serverOut, &serverOut
	if err := server.Start(); err != nil {
		return nil, err
	}
	// The server serves one client and ends. Where no client came, it is told to.
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	if err := awaitListener(ctx, port); err != nil {
		return nil, fmt.Errorf("%s server: %w: %s", perftest, err, &serverOut)
	}
	client := exec.CommandContext(ctx, perftest, append(u.client(j, iters, cpus[1]), "-p", port)...)
	client.Env, client.Stdout, client.Stderr = env, &out, &stderr
	if err := client.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s%s", u.Command(j, iters, cpus), err, &stderr, &out)
	}
	_ = server.Wait()
	s, err := parseUCX(j, out.String())
	if err != nil {
		return nil, err
	}
	if bytes := float64(j.Size) * float64(iters); j.Test == "bw" && bytes > 0 {
		// Start and warm-up are in it too: a tenth of the messages, and some 20 ms.
		s["cpu_s_per_gb"] = (cpuOf(server) + cpuOf(client)).Seconds() / (bytes * 1.1 / 1e9)
	}
	return s, nil
}

func cpuOf(c *exec.Cmd) time.Duration {
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime()
}

// parseUCX reads the output of -f -v: a line of names, a line of numbers.
//
//	iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
//	20000,6.448,6.661,6.661,1.15,1.15,150125,150125
func parseUCX(j Job, out string) (Sample, error) {
	var names []string
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		switch {
		case len(fields) > 1 && fields[0] == "iterations":
			names = fields
		case names != nil && j.Threads > 1 && len(fields) == 4:
			// Of several threads: messages, half round trip, bandwidth, messages a second.
			return ucxSample(j, []string{"", "threads_lat", "", ""}, fields)
		case names != nil && len(fields) == len(names):
			return ucxSample(j, names, fields)
		}
	}
	return nil, fmt.Errorf("%s printed no result line that this program understands (it is written for version 1.13): %q", perftest, out)
}

// ucxSample takes the one figure that the test is for. Bandwidth is taken from the message rate:
// the program's own is in units of 2^20 bytes.
func ucxSample(j Job, names, fields []string) (Sample, error) {
	want := ucxTests[j.Test].column
	for i, name := range names {
		if name != want {
			continue
		}
		v, err := strconv.ParseFloat(fields[i], 64)
		switch {
		case err != nil || v <= 0:
			return nil, fmt.Errorf("%s: %s is %q, not a positive number", perftest, name, fields[i])
		case want == "overall_mr":
			return Sample{"msg_s": v, "mb_s": v * float64(j.Size) / 1e6}, nil
		case want == "threads_lat":
			return Sample{"avg_us": v}, nil
		}
		// Of a latency the program has this median only.
		return Sample{"p50_us": v, "mid_us": v}, nil
	}
	return nil, fmt.Errorf("%s: no column %s among %s", perftest, want, strings.Join(names, ","))
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
