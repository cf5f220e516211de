// Package state is the disk: the only package that writes under the state root.
//
// What always holds:
//
//   - A snapshot record is replaced whole or not at all, and survives power loss
//     once its write returned (see [WriteFile] for the syscall order).
//   - A reader never writes and never creates anything.
//   - Directories are 0700, files 0600.
//   - A damaged file costs only itself and is never deleted ([DamagedError] can
//     set it aside).
//   - Fields we do not know survive a rewrite; a version we do not know is refused
//     ([ErrVersion]).
//
// Layout below the root, one directory per workspace:
//
//	<id>/workspace.json            id, root, config, firstSeen, lastSeen
//	<id>/runs/<run>.json           one run
//	<id>/runs.index                what is known to be settled: a cache, never the truth
//	<id>/output/<run>.jsonl        append-only output journal
//	<id>/schedules/<key>.json      history of a schedule or monitor
//	<id>/slots/<key>.jsonl         append-only ledger: how each due slot ended
//	<id>/since.json                when each key was first seen with its present cadence
//	<id>/monitors/<key>.json       the committed observation, and a pending launch
//	<id>/locks/<name>              pid of the holder
//	<id>/heartbeat.json            the service of this workspace
package state
