package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func supported() error { return nil }

// ownName begins the names that this library gives to what others of the host can see.
const ownName = "tagmatch"

// abstractSockets names those that this process listens at or is connected to by.
func abstractSockets() ([]string, error) {
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return nil, err
	}
	mine := map[string]bool{}
	for _, l := range links {
		// One that is closed meanwhile has no target.
		if target, err := os.Readlink(l); err == nil {
			mine[target] = true
		}
	}
	var names []string
	err = eachAbstract(func(name, inode string) {
		if mine["socket:["+inode+"]"] {
			names = append(names, name)
		}
	})
	return names, err
}

// eachAbstract calls f for each abstract socket of this network namespace.
func eachAbstract(f func(name, inode string)) error {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return err
	}
	for l := range bytes.Lines(table) {
		// Num RefCount Protocol Flags Type St Inode Path
		if w := strings.Fields(string(l)); len(w) == 8 && strings.HasPrefix(w[7], "@") {
			f(w[7], w[6])
		}
	}
	return nil
}

// left lists what is left of a job whose ranks had these sockets: processes of this one, sockets,
// and files of shared memory.
func left(sockets []string) (list []string, err error) {
	if err := eachAbstract(func(name, _ string) {
		if slices.Contains(sockets, name) {
			list = append(list, "socket "+name)
		}
	}); err != nil {
		return nil, err
	}
	files, err := filepath.Glob("/dev/shm/*" + ownName + "*")
	if err != nil {
		return nil, err
	}
	list = append(list, files...)
	children, err := children()
	return append(list, children...), err
}

// children lists the processes that this one has started and not waited for.
func children() (list []string, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid ...; a name may have spaces and parentheses.
		rest := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(rest) < 2 {
			return nil, fmt.Errorf("%s is %q", path, text)
		}
		if rest[1] == strconv.Itoa(os.Getpid()) {
			list = append(list, fmt.Sprintf("process %s, state %s", filepath.Base(filepath.Dir(path)), rest[0]))
		}
	}
	return list, nil
}
