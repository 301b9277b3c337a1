package hang

import "testing"

func TestHangs(*testing.T) {
	select {}
}
