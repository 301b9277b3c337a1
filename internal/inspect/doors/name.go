package doors

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Name is the name of a door.
type Name struct {
	UID  int    // of its process
	Job  string // letters and digits
	Rank int
	PID  int // in the process's own namespace
}

const prefix = "@tagmatch/"

// String is the name of the socket, as package net has it.
func (n Name) String() string {
	return fmt.Sprintf("%s%d/%s/%d/%d", prefix, n.UID, n.Job, n.Rank, n.PID)
}

// ParseName is the inverse of String; false where s is no name of a door.
func ParseName(s string) (n Name, ok bool) {
	rest, ok := strings.CutPrefix(s, prefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 4 || !isWord(parts[1]) {
		return n, false
	}
	n.Job = parts[1]
	for i, at := range map[int]*int{0: &n.UID, 2: &n.Rank, 3: &n.PID} {
		v, err := strconv.ParseUint(parts[i], 10, 32)
		if err != nil {
			return n, false
		}
		*at = int(v)
	}
	return n, n.String() == s
}

// longestJob is the longest name of a job.
const longestJob = 32

// isWord reports whether s is good as the name of a job. Others make such sockets too.
func isWord(s string) bool {
	return s != "" && len(s) <= longestJob && strings.Trim(s, "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

// OfJob is the names of all ranks of n's job, which is that of one user.
func (n Name) OfJob(names []Name) (list []Name) {
	for _, m := range names {
		if m.Job == n.Job && m.UID == n.UID {
			list = append(list, m)
		}
	}
	return list
}

// sortNames sorts by job and rank.
func sortNames(list []Name) {
	slices.SortFunc(list, func(a, b Name) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.PID, b.PID))
	})
}
