package p2p

import "golang.org/x/sys/unix"

// processors are those allowed to this process.
func processors() cpuSet {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return newCPUSet(cpus)
}
