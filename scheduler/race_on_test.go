//go:build race

package scheduler

// raceDetector is on: everything that reads clocks is ten times as slow.
const raceDetector = true
