package doors

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const supported = true

// peer is who is at the other end of a connection; the process is 0 where it is in another
// namespace.
func peer(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if cerr != nil {
		return 0, 0, cerr
	}
	if err != nil {
		return 0, 0, err
	}
	return int(cred.Uid), int(cred.Pid), nil
}

// Find lists the doors of this host, or of this network namespace: those that this user can ask, by
// job and rank.
func Find() ([]Name, error) {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("doors of ranks are found in the kernel's list of sockets: %w", err)
	}
	return find(table, os.Geteuid()), nil
}

// find lists the doors in the text of /proc/net/unix.
func find(table []byte, uid int) (list []Name) {
	const listens = "00010000" // __SO_ACCEPTCON
	for lines := bufio.NewScanner(bytes.NewReader(table)); lines.Scan(); {
		f := strings.Fields(lines.Text()) // Num RefCount Protocol Flags Type St Inode Path
		if len(f) != 8 || f[3] != listens {
			continue
		}
		if n, ok := ParseName(f[7]); ok && (uid == 0 || n.UID == uid) {
			list = append(list, n)
		}
	}
	sortNames(list)
	return list
}

// Runs reports whether n's process is one of n's user. Any user can give a socket a name with the
// number of another one's process.
func (n Name) Runs() bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID)) // gone: nothing is in it
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 5 && f[0] == "Uid:" { // real, effective, saved, of files
			return f[2] == strconv.Itoa(n.UID)
		}
	}
	return false
}

// Process says why a process does not answer, as /proc has it.
func Process(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Gone
	}
	i := bytes.LastIndexByte(stat, ')') // of its name, which may have spaces
	if i < 0 || i+2 >= len(stat) {
		return Busy
	}
	switch stat[i+2] {
	case 'T', 't':
		return Stopped
	case 'D':
		return Blocked
	case 'Z', 'X':
		return Gone
	}
	return Busy
}
