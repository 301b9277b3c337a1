package launch

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/ports"
)

// Host is one of Options.Hosts.
type Host struct {
	Name  string // as Options.Agent takes it; the first one also as the other hosts reach it
	Slots int    // ranks on it
}

// ParseHosts reads a comma list of host:slots; slots is 1 where it is missing. An IPv6 address
// stands in brackets, behind the user where there is one.
func ParseHosts(s string) ([]Host, error) {
	var list []Host
	for part := range strings.SplitSeq(s, ",") {
		user, host, slots, err := splitHost(part)
		if err != nil {
			return nil, err
		}
		h := Host{Name: user + host, Slots: 1}
		if slots != "" {
			n, err := strconv.Atoi(slots[1:])
			if err != nil || n < 1 || n > MaxRanks {
				return nil, fmt.Errorf("launch: host %q: the slots behind the colon are a number from 1 to %d", part, MaxRanks)
			}
			h.Slots = n
		}
		if host == "" || strings.HasPrefix(h.Name, "-") || strings.ContainsAny(h.Name, " \t'\"\\$`;&|<>[]") {
			return nil, fmt.Errorf("launch: host list %q: %q is no name of a host", s, part)
		}
		list = append(list, h)
	}
	return list, nil
}

// splitHost cuts user@[host]:slots behind the @, without the brackets, and before the colon.
func splitHost(part string) (user, host, slots string, err error) {
	at := strings.LastIndexByte(part, '@') + 1
	user, host = part[:at], part[at:]
	if inside, rest, ok := strings.Cut(strings.TrimPrefix(host, "["), "]"); ok && host[0] == '[' && (rest == "" || rest[0] == ':') {
		return user, inside, rest, nil
	}
	if strings.Count(host, ":") > 1 {
		return "", "", "", fmt.Errorf("launch: host %q: put an IPv6 address in brackets, as in [fe80::1]:2", part)
	}
	if i := strings.IndexByte(host, ':'); i >= 0 {
		host, slots = host[:i], host[i:]
	}
	return user, host, slots, nil
}

// address is the name without the user whom ssh logs in.
func (h *Host) address() string { return h.Name[strings.LastIndexByte(h.Name, '@')+1:] }

// defaultAgent starts a shell on another host.
var defaultAgent = []string{"ssh", "-o", "BatchMode=yes"}

// placed is where a rank runs.
type placed struct {
	host             string
	local, localSize int
}

// place returns the place of each rank: the hosts are filled one after the other.
func place(hosts []Host, n int) ([]placed, error) {
	var list []placed
	for _, h := range hosts {
		k := min(h.Slots, n-len(list))
		for i := range k {
			list = append(list, placed{h.Name, i, k})
		}
	}
	if len(list) < n {
		return nil, fmt.Errorf("launch: %d ranks on hosts with %d slots: give more of them, as in host:slots", n, len(list))
	}
	first := hosts[0].address()
	if ip, err := netip.ParseAddr(first); (first == "localhost" || err == nil && ip.IsLoopback()) && list[n-1].host != hosts[0].Name {
		return nil, fmt.Errorf("launch: the first of several hosts is %s: name it as the others reach it", hosts[0].Name)
	}
	return list, nil
}

// remotePort is a port for the rendezvous on the host of rank 0: of the range or, where there is
// none, above the ephemeral range of Linux. Only rank 0 can tell whether it is free: the job fails
// where it is not.
func remotePort(within ports.Range) int { return within.Pick(rand.Uint64(), 61440+rand.IntN(4096)) }

// ports is the range of ports at which the ranks may listen.
func (j *job) ports() (ports.Range, error) {
	s := ""
	for _, kv := range j.opt.Env {
		if v, ok := strings.CutPrefix(kv, bootstrap.EnvPorts+"="); ok {
			s = v
		}
	}
	r, err := ports.Parse(s)
	if err != nil {
		return r, fmt.Errorf("launch: %s is %q: %w", bootstrap.EnvPorts, s, err)
	}
	return r, nil
}

// passed reports whether a variable of the launcher goes to ranks on other hosts. A shell sets only
// names that are words.
func (o *Options) passed(name string) bool {
	return isWord(name) && o.chosen(name)
}

// isWord reports whether a shell takes name as that of a variable.
func isWord(name string) bool {
	return name != "" && strings.Trim(name, wordChars) == "" && (name[0] < '0' || name[0] > '9')
}

const wordChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789"

func (o *Options) chosen(name string) bool {
	return strings.HasPrefix(name, "TAGMATCH_") || strings.HasPrefix(name, "GO") && name != "GOROOT" && name != "GOPATH" ||
		slices.Contains(o.Pass, name)
}

// setPass has Pass name variables, of which those given with a value are set in Env.
func (o *Options) setPass() error {
	o.agentEnv = o.Env
	env, names := slices.Clone(o.Env), make([]string, 0, len(o.Pass))
	for _, p := range o.Pass {
		name, _, given := strings.Cut(p, "=")
		ofName := func(kv string) bool { return strings.HasPrefix(kv, name+"=") }
		switch {
		case !isWord(name):
			return fmt.Errorf("launch: variable %q to pass: a name is made of letters, digits and _", p)
		case ofJob(name):
			return fmt.Errorf("launch: variable %s to pass: the launcher sets or removes it for each job", name)
		case given:
			env = append(slices.DeleteFunc(env, ofName), p)
		case !slices.ContainsFunc(env, ofName):
			return fmt.Errorf("launch: variable %s to pass: it is not set here; %s=value sets it for the ranks", name, name)
		}
		names = append(names, name)
	}
	o.Env, o.Pass = env, names
	return nil
}
