package skip

import "testing"

func TestPasses(*testing.T) {}

func TestUnlisted(t *testing.T) {
	t.Skip("test/vm/skips does not list it")
}
