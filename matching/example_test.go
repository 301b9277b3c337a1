package matching_test

import (
	"fmt"

	"github.com/tagmatch/tagmatch/matching"
)

// A message goes to the oldest receive that matches it, or waits; a receive
// takes the oldest message that matches it, or waits.
func Example() {
	const exact = ^uint64(0)
	posted := matching.NewPosted[string](42)
	unexpected := matching.NewUnexpected[string](42)

	receive := func(tag, mask uint64, name string) {
		if msg, ok := unexpected.Match(tag, mask); ok {
			fmt.Println(name, "gets", msg)
			return
		}
		posted.Post(tag, mask, name)
	}
	arrive := func(tag uint64, msg string) {
		if name, ok := posted.Match(tag); ok {
			fmt.Println(name, "gets", msg)
			return
		}
		unexpected.Add(tag, msg)
	}

	receive(0x100, 0xf00, "wildcard")
	receive(0x101, exact, "exact")
	arrive(0x101, "first") // both match; the wildcard was posted first
	arrive(0x101, "second")
	arrive(0x102, "third")
	receive(0x102, exact, "late")

	// Output:
	// wildcard gets first
	// exact gets second
	// late gets third
}
