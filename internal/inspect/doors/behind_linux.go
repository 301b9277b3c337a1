package doors

import (
	"net"
	"slices"
)

// Halted is a rank whose process cannot answer.
type Halted struct {
	Name
	Why string // Stopped, Blocked or Gone
}

// Behind is the ranks behind one of the same job on this host that cannot answer, up to the next
// one that runs; behind the last is the first. So each that is stopped has one that tells of it,
// where any runs.
func Behind(me Name) (list []Halted) {
	names, _ := Find() // what is not found is not told of
	names = me.OfJob(names)
	at := slices.Index(names, me)
	if at < 0 {
		return nil
	}
	for _, n := range slices.Concat(names[at+1:], names[:at]) {
		why, pid := halted(n)
		if why == "" {
			break
		}
		n.PID = pid
		list = append(list, Halted{n, why})
	}
	return list
}

// halted says why the process of a door cannot answer, "" where it can, and which it is.
func halted(n Name) (why string, pid int) {
	if Process(n.PID) == Busy {
		return "", 0 // mostly: without asking
	}
	// Its number may be of another namespace. This process knows it by the one that it sees.
	c, err := net.Dial("unix", n.String())
	if err != nil {
		return "", 0
	}
	defer c.Close()
	uid, pid, err := peer(c.(*net.UnixConn))
	if err != nil || pid == 0 || uid != n.UID { // of another user: it says nothing of the rank
		return "", 0
	}
	if why = Process(pid); why == Busy {
		why = ""
	}
	return why, pid
}
