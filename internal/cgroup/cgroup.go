// Package cgroup finds the limits that control groups of Linux set for this process, as those of a
// container: cgroup v2, v1, and hosts with both.
//
// Concurrency: it has functions only.
package cgroup

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Limit is a limit of memory.
type Limit struct {
	Bytes uint64 // that the group may use
	Free  uint64 // of Bytes: not in use, or file pages that the kernel can drop
	File  string // that has the limit
}

// hierarchy is a mounted tree of groups.
type hierarchy struct {
	dir   string // where it is mounted
	top   string // the group that is visible there
	own   string // the group of this process
	files *files
}

// files are the names of a version's files and counters.
type files struct {
	limit, usage string
	droppable    []string // counters of memory.stat
}

var (
	version1 = &files{"memory.limit_in_bytes", "memory.usage_in_bytes", []string{"total_active_file", "total_inactive_file"}}
	version2 = &files{"memory.max", "memory.current", []string{"active_file", "inactive_file"}}
)

// unlimited is from where on a number is none that anybody has set: v1 has one of 2^63 less a page.
const unlimited = 1 << 60

// Memory is the limit of this process's group, or of one above it that can be seen, which leaves
// the least free. False: there is none. root is that of the file system, "/" but in tests.
func Memory(root string) (least Limit, ok bool) {
	for _, h := range hierarchies(root) {
		group, shown := h.group()
		for shown {
			if l, limited := h.limit(root, group); limited && (!ok || l.Free < least.Free) {
				least, ok = l, true
			}
			shown, group = group != "/", path.Dir(group)
		}
	}
	return least, ok
}

// group is the process's group as a path below dir. False: the mount shows neither that nor one
// above it, but those of others. Paths begin with "/.." for each step above the group that this
// process sees as the topmost one (cgroup_namespaces(7)).
func (h *hierarchy) group() (string, bool) {
	below, ok := strings.CutPrefix(h.own, strings.TrimSuffix(h.top, "/"))
	switch {
	case ok && below == "", ok && below[0] == '/':
		return path.Clean("/" + below), !strings.HasPrefix(below+"/", "/../")
	case strings.ReplaceAll(h.top, "/..", "") == "":
		return "/", strings.Count(h.own, "/..") <= strings.Count(h.top, "/..")
	}
	return "", false
}

// limit reads the limit of one group.
func (h *hierarchy) limit(root, group string) (Limit, bool) {
	dir := path.Join(h.dir, group)
	l := Limit{File: path.Join(dir, h.files.limit)}
	var ok bool
	if l.Bytes, ok = number(path.Join(root, l.File)); !ok || l.Bytes >= unlimited {
		return l, false
	}
	used, _ := number(path.Join(root, dir, h.files.usage))
	used -= min(used, counters(path.Join(root, dir, "memory.stat"), h.files.droppable))
	l.Free = l.Bytes - min(l.Bytes, used)
	return l, true
}

// number reads a file of one number.
func number(file string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil // v2 has "max" where there is no limit
}

// counters adds up counters of a file with one a line.
func counters(file string, names []string) (sum uint64) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil && slices.Contains(names, name) {
			sum += n
		}
	}
	return sum
}

// hierarchies lists the trees of groups that may limit memory and are mounted.
func hierarchies(root string) []hierarchy {
	own1, own2 := groups(root)
	text, err := os.ReadFile(path.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	var list []hierarchy
	for line := range strings.Lines(string(text)) {
		// id parent device root dir options [optional...] - type source options
		mount, kind, _ := strings.Cut(line, " - ")
		at, of := strings.Fields(mount), strings.Fields(kind)
		if len(at) < 6 || len(of) < 3 {
			continue
		}
		h := hierarchy{dir: unescape(at[4]), top: unescape(at[3])}
		switch {
		case of[0] == "cgroup2" && own2 != "":
			h.own, h.files = own2, version2
		case of[0] == "cgroup" && own1 != "" && slices.Contains(strings.Split(of[2], ","), "memory"):
			h.own, h.files = own1, version1
		default:
			continue
		}
		list = append(list, h)
	}
	return list
}

// groups are this process's groups in the hierarchy of v1 that limits memory, and in that of v2;
// empty: none.
func groups(root string) (v1, v2 string) {
	text, err := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	if err != nil {
		return "", ""
	}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case controllers == "":
			v2 = group
		case slices.Contains(strings.Split(controllers, ","), "memory"):
			v1 = group
		}
	}
	return v1, v2
}

// unescape decodes a path of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
