package benchkit

import "github.com/tagmatch/tagmatch/internal/launch"

// launchSelf runs this very command as two ranks, each on a processor of its own.
func launchSelf(f Flags) (int, error) {
	return launch.Self(2, launch.Options{NoPrefix: true, Pin: !f.NoPin})
}
