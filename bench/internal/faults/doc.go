// Package faults starts jobs of which one rank dies, one job after the other, and checks what comes
// of each: that all survivors end well and name that rank, that nothing is left of the job, and
// that memory and descriptors do not grow from job to job. What the ranks exchange meanwhile is
// their own affair: they tell the driver, in lines on their standard output, when they are ready
// and what they have seen.
//
// Concurrency: Drive is called once in a process, Join and the methods of Rank by one goroutine of
// a rank.
package faults
