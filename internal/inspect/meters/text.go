package meters

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Rank is the numbers of one rank.
type Rank struct {
	Job, Program string
	Rank         int
	Values       Values
}

// ContentType is that of what Write writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Write writes the numbers of ranks in Prometheus' text format. What a rank has no value of, as its
// program is of an older release, is left out.
func Write(w io.Writer, ranks []Rank) error {
	out := bufio.NewWriter(w)
	for i := range Families {
		writeFamily(out, &Families[i], ranks)
	}
	return out.Flush()
}

func writeFamily(out *bufio.Writer, f *Family, ranks []Rank) {
	begun := false
	for i := range ranks {
		r := &ranks[i]
		for _, s := range f.Samples {
			v, ok := r.Values[s.Field]
			if !ok {
				continue
			}
			if !begun {
				fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", f.Name, f.Help, f.Name, f.Kind)
				begun = true
			}
			fmt.Fprintf(out, "%s{%s} %s\n", f.Name, labels(r, f.Label, s.Value), strconv.FormatFloat(v, 'g', -1, 64))
		}
	}
}

// quoted is what has a meaning of its own in the value of a label.
var quoted = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func labels(r *Rank, label, value string) string {
	s := fmt.Sprintf(`%s="%s",%s="%d",%s="%s"`, Labels[0], quoted.Replace(r.Job), Labels[1], r.Rank, Labels[2], quoted.Replace(r.Program))
	if label != "" {
		s += fmt.Sprintf(`,%s="%s"`, label, value)
	}
	return s
}
