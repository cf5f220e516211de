// Package transient runs steps as transient systemd service units, over D-Bus: a step that is a unit of its own has the
// limits and the sandbox that systemd knows, and outlives the service that started it.
//
// What always holds:
//
//   - A unit that was started stays loaded, with how it ended, until Stop: also when the service, or the manager, is
//     started anew in between. So whoever comes later finds it by its name.
//   - Its program gets the environment of its environment file and no other, its arguments as they are (nothing is
//     expanded in them), and its output is appended to the two files.
//   - Stop ends every process of the unit's control group, and leaves no unit behind. So does a Start that fails.
//   - Only directives that Check knows, with values it has read, reach the manager. The same definition gives the same
//     errors on every platform.
//   - A lost connection to the manager is made again. Nothing is asked twice that may be done only once.
package transient
