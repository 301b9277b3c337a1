package benchkit

import "github.com/tagmatch/tagmatch/internal/launch"

// launchSelf runs this very command as n ranks, each on a processor of its own as far as there are as many.
func launchSelf(n int, f Flags) (int, error) {
	return launch.Self(n, launch.Options{NoPrefix: true, Pin: !f.NoPin})
}
