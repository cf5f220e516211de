// Package booted holds tests of the packaged service on a real systemd: machine.sh boots one as PID 1 of a throw-away
// Debian, for each version that the units must work with.
//
// They need root on Debian, and the root file systems that `packaging/booted/machine.sh prepare` builds. Elsewhere they
// are skipped; where CI=true that is a failure.
package booted
