package judge

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Host is where and with what was measured, as -json has it.
type Host struct {
	Test      string            `json:"test"` // "host"
	Time      string            `json:"time"`
	Host      string            `json:"host"`
	Kernel    string            `json:"kernel"`
	Processor string            `json:"processor"`
	CPUs      int               `json:"cpus"`
	Go        string            `json:"go"`
	Revision  string            `json:"revision,omitempty"`
	Peers     map[string]string `json:"peers"`
	Rounds    int               `json:"rounds"`
	Pinned    [2]int            `json:"pinned"`
}

// Host describes this machine and the peers.
func (j *Judge) Host() Host {
	h := Host{Test: "host", Time: time.Now().UTC().Format(time.RFC3339), Kernel: kernel(), Processor: processor(), CPUs: runtime.NumCPU(),
		Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, Revision: revision(), Peers: map[string]string{}, Rounds: j.Rounds, Pinned: j.CPUs}
	h.Host, _ = os.Hostname()
	for _, p := range j.Peers {
		h.Peers[p.Name()] = p.Version()
	}
	return h
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// processor is the first model name that the kernel tells.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// revision is the commit that this program was built of, where the go command has noted it.
func revision() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	commit, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " and changes"
		}
	}
	return commit + modified
}
