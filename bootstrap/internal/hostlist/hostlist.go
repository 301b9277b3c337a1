// Package hostlist reads what Slurm puts into the environment about the hosts of a job: their names
// in the short form of its hostlists, and how many tasks each has. The grammar is that of
// scontrol(1), "show hostnames". The functions may be called from any goroutine.
package hostlist

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxNames bounds the names of one list, and MaxTasks the nodes of Tasks, as in Slurm.
const (
	MaxNames = 1 << 18
	MaxTasks = 1 << 18
)

// Expand returns the names of a list such as "n[1-3,007-010],login": those of several brackets in
// one name multiply, the last one fastest; the width of a range's first number is kept.
func Expand(list string) ([]string, error) {
	var names []string
	for _, part := range split(list) {
		expanded, err := expand(part, MaxNames-len(names))
		if err != nil {
			return nil, fmt.Errorf("host list %q: %w", short(list), err)
		}
		names = append(names, expanded...)
	}
	return names, nil
}

// split cuts a list at the commas outside of brackets.
func split(list string) []string {
	var parts []string
	depth, start := 0, 0
	for i, c := range list {
		switch c {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, list[start:i])
				start = i + 1
			}
		}
	}
	return append(parts, list[start:])
}

// expand returns the names, at most room, of one element of a list.
func expand(s string, room int) ([]string, error) {
	if s == "" {
		return nil, errors.New("an empty name")
	}
	names := []string{""}
	for s != "" {
		prefix, rest, bracket := strings.Cut(s, "[")
		if strings.ContainsRune(prefix, ']') {
			return nil, errors.New("a closing bracket without an opening one")
		}
		if !bracket {
			return product(names, []string{prefix}, room)
		}
		inside, after, ok := strings.Cut(rest, "]")
		if !ok || strings.ContainsRune(inside, '[') {
			return nil, errors.New("a bracket that is not closed")
		}
		numbers, err := ranges(inside, room)
		if err != nil {
			return nil, err
		}
		for i := range numbers {
			numbers[i] = prefix + numbers[i]
		}
		if names, err = product(names, numbers, room); err != nil {
			return nil, err
		}
		s = after
	}
	return names, nil
}

// product appends each of tails to each of heads.
func product(heads, tails []string, room int) ([]string, error) {
	if len(heads)*len(tails) > room {
		return nil, errTooMany
	}
	list := make([]string, 0, len(heads)*len(tails))
	for _, h := range heads {
		for _, t := range tails {
			list = append(list, h+t)
		}
	}
	return list, nil
}

var errTooMany = fmt.Errorf("more than %d names", MaxNames)

// ranges returns the numbers of a bracket's inside, such as "1-3,007".
func ranges(s string, room int) ([]string, error) {
	var list []string
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		low, err1 := strconv.ParseUint(first, 10, 63)
		high, err2 := strconv.ParseUint(last, 10, 63)
		if err1 != nil || err2 != nil || high < low {
			return nil, fmt.Errorf("%q is neither a number nor a range", short(part))
		}
		if high-low >= uint64(room-len(list)) {
			return nil, errTooMany
		}
		for n := low; n <= high; n++ {
			list = append(list, fmt.Sprintf("%0*d", len(first), n))
		}
	}
	return list, nil
}

// Tasks returns the tasks of each node of a list such as "2(x3),1".
func Tasks(s string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(s, ",") {
		count, times, repeated := strings.Cut(strings.TrimSuffix(part, ")"), "(x")
		if !repeated {
			times = "1"
		}
		n, err1 := strconv.Atoi(count)
		k, err2 := strconv.Atoi(times)
		if err1 != nil || err2 != nil || n < 0 || k < 1 || repeated != strings.HasSuffix(part, ")") {
			return nil, fmt.Errorf("tasks by node %q: %q is not of the form 2 or 2(x3)", short(s), short(part))
		}
		if k > MaxTasks-len(list) {
			return nil, fmt.Errorf("tasks by node %q: more than %d nodes", short(s), MaxTasks)
		}
		for range k {
			list = append(list, n)
		}
	}
	return list, nil
}

// short is s for an error text.
func short(s string) string { return s[:min(len(s), 80)] }
