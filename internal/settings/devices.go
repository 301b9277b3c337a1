package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/verbs"
)

// own are the names of the software device, "auto" first.
func own() []string { return []string{Auto, SHM, TCP} }

// Devices lists the devices of this process: "auto" first, those of registered drivers last. The
// slice is the caller's.
func Devices() []string {
	list := own()
	for _, d := range verbs.Drivers() {
		names, _ := d.Devices()
		list = append(list, names...)
	}
	return list
}

// Driver is the one that opens a device; nil: it is the software device, or there is none.
func Driver(device string) verbs.Driver {
	if slices.Contains(own(), device) {
		return nil
	}
	for _, d := range verbs.Drivers() {
		if names, _ := d.Devices(); slices.Contains(names, device) {
			return d
		}
	}
	return nil
}

// eagerOf is the least default of EagerLimit that a driver has for one of the devices; 0: none has.
func eagerOf(devices string) (least int) {
	for name := range strings.SplitSeq(devices, ",") {
		if l, ok := Driver(name).(verbs.EagerLimiter); ok {
			if n := l.EagerLimit(name); least == 0 || n < least {
				least = n
			}
		}
	}
	return least
}

// checkDevice returns an error that names the fault of a Config.Device, or nil.
func checkDevice(name string) error {
	list := strings.Split(name, ",")
	for i, n := range list {
		switch {
		case len(list) > 1 && n == Auto:
			return fmt.Errorf("auto stands alone: %s", oneOf(Devices()))
		case slices.Contains(list[:i], n):
			return fmt.Errorf("%s is named twice", n)
		case slices.Contains(own(), n) || Driver(n) != nil:
		case len(list) > 1:
			return fmt.Errorf("there is no device %q: %s", n, choice(n))
		default:
			return errors.New(choice(n))
		}
	}
	return nil
}

// choice says which devices there are in place of one that there is not, and what would add it.
func choice(missing string) string {
	s := oneOf(Devices())
	for _, d := range verbs.Drivers() {
		if _, err := d.Devices(); err != nil {
			s += fmt.Sprintf("; driver %s has none: %v", d.Name(), err)
		}
	}
	if add := importOf(missing); add != "" {
		s += fmt.Sprintf(`; a device of that name needs import _ %q in the program`, add)
	}
	return s
}

// drivers are the packages of drivers of ours, by their names, by how the names of their devices
// begin, also those that the kernel gives, and with the variables that they read: a site may set
// these for programs without the driver too.
var drivers = []struct {
	pkg, name string
	variables []string
	begin     []string
}{
	{"github.com/tagmatch/tagmatch/verbs/ibverbs", "ibverbs", []string{"TAGMATCH_RDMA_PORT", "TAGMATCH_RDMA_GID"},
		[]string{"rdma", "mlx4_", "mlx5_", "bnxt_re", "irdma", "i40iw", "cxgb4_", "qedr", "hfi1_", "hns_", "efa_", "erdma_", "mana_", "ocrdma", "rxe", "siw", "rocep", "ibp"}},
}

// importOf is the package that would add a device: "" if its driver is here, or not known.
func importOf(device string) string {
	for _, k := range drivers {
		named := device == k.name || slices.ContainsFunc(k.begin, func(s string) bool { return strings.HasPrefix(device, s) })
		if named && !slices.ContainsFunc(verbs.Drivers(), func(d verbs.Driver) bool { return d.Name() == k.name }) {
			return k.pkg
		}
	}
	return ""
}
