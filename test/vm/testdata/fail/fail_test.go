package fail

import "testing"

func TestPasses(*testing.T) {}

func TestFails(t *testing.T) {
	t.Fatal("as it must")
}
