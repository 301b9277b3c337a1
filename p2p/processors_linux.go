package p2p

import "golang.org/x/sys/unix"

// processors lists the processors allowed to this process; nil if the kernel does not tell.
func processors() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	cpus := make([]int, 0, set.Count())
	for cpu := range maxCPU + 1 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}
