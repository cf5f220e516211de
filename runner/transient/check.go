package transient

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Property is a directive with a value that was checked.
type Property struct {
	name string
	set  []assignment
}

// Name returns the directive's name, as systemd spells it.
func (p Property) Name() string { return p.name }

// An assignment is what the manager is sent: Go's type of the value says which D-Bus type it is.
type assignment struct {
	name  string
	value any
}

// A directive reads values of one kind. A value that does not fit is an error that completes "MemoryMax: ".
type directive func(name string, value any) ([]assignment, error)

// Check turns a directive of a step's unit, by the name that systemd gives it, and its value as YAML has it (a string,
// a bool, an int64, a float64, or a list of strings) into a property.
func Check(name string, value any) (Property, error) {
	d, ok := directives()[name]
	if !ok {
		return Property{}, unknown(name)
	}
	set, err := d(name, value)
	if err != nil {
		return Property{}, fmt.Errorf("%s: %w", name, err)
	}
	return Property{name, set}, nil
}

// Names returns the directives that Check knows, sorted.
func Names() []string { return slices.Sorted(maps.Keys(directives())) }

func unknown(name string) error {
	if key, ok := elsewhere[name]; ok {
		return fmt.Errorf("directive %q cannot be set for a step: %s", name, key)
	}
	if best := nearest(name); best != "" {
		return fmt.Errorf("unknown directive %q (did you mean %q?)", name, best)
	}
	return fmt.Errorf("unknown directive %q", name)
}

// nearest returns the directive whose name is the most like another, or "" where none is.
func nearest(name string) string {
	best, least := "", max(2, len(name)/4)+1
	for _, n := range Names() {
		if d := distance(strings.ToLower(name), strings.ToLower(n)); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance counts the letters to change, add or leave out.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// elsewhere are directives that a step cannot have, with what does it instead.
var elsewhere = map[string]string{
	"ExecStart": "its run says what it does", "ExecStartPre": "make it a step of its own", "ExecStartPost": "make it a step of its own",
	"ExecStop": "make it a step with always: true", "ExecStopPost": "make it a step with always: true", "ExecReload": "a step is not reloaded",
	"ExecCondition": "its if says whether it runs",
	"Type":          "it runs until its program ends", "RemainAfterExit": "it runs until its program ends", "PIDFile": "it runs until its program ends",
	"Restart": "its retry says whether it is tried again", "RestartSec": "its retry says when it is tried again",
	"Environment": "use its env", "EnvironmentFile": "use its env, or its secrets", "PassEnvironment": "use its env", "UnsetEnvironment": "use its env",
	"SetCredential": "use its secrets", "SetCredentialEncrypted": "use its secrets",
	"WorkingDirectory": "use its workdir",
	"StandardInput":    "its input comes from its run", "StandardOutput": "its output goes to the run's journal", "StandardError": "its output goes to the run's journal",
	"User": "use the workflow's user", "Group": "use the workflow's group", "DynamicUser": "use the workflow's user", "UMask": "it has the service's",
	"RuntimeMaxSec": "use its timeout", "TimeoutSec": "use its timeout", "TimeoutStartSec": "use its timeout", "TimeoutStopSec": "it has the service's grace",
	"KillMode": "all its processes are ended", "KillSignal": "it is ended by SIGTERM", "SendSIGKILL": "all its processes are ended", "FinalKillSignal": "it is ended by SIGKILL",
	"OnFailure": "use the workflow's on_failure", "OnSuccess": "make it a step of its own",
	"Description": "its unit is named for it", "LogExtraFields": "its unit is named for it", "Delegate": "its processes stay in one control group",
	"WatchdogSec": "use its timeout", "NotifyAccess": "it runs until its program ends",
}

// directives are what a step's unit may set. Both the oldest systemd we know (252) and the newest take all of them.
func directives() map[string]directive {
	sizes := size("bytes")
	table := map[string]directive{
		"CPUQuota": quota, "CPUWeight": weight("idle"), "IOWeight": weight(""), "AllowedCPUs": cpus, "CPUAffinity": cpus,
		"TasksMax": tasks, "Slice": slice,
		"LimitCPU":  rlimit(seconds, "a time such as 90 or 10min"),
		"LimitCORE": rlimit(sizeOf, sizeWant), "LimitFSIZE": rlimit(sizeOf, sizeWant), "LimitMEMLOCK": rlimit(sizeOf, sizeWant),
		"LimitSTACK": rlimit(sizeOf, sizeWant), "LimitAS": rlimit(sizeOf, sizeWant), "LimitDATA": rlimit(sizeOf, sizeWant),
		"LimitNOFILE": rlimit(count, "a number"), "LimitNPROC": rlimit(count, "a number"),
		"LimitSIGPENDING": rlimit(count, "a number"), "LimitMSGQUEUE": rlimit(sizeOf, sizeWant),
		"Nice": integer(-20, 19), "OOMScoreAdjust": integer(-1000, 1000),
		"OOMPolicy":             word("continue", "stop", "kill"),
		"IOSchedulingClass":     code(map[string]int32{"realtime": 1, "best-effort": 2, "idle": 3}),
		"IOSchedulingPriority":  integer(0, 7),
		"CPUSchedulingPolicy":   code(map[string]int32{"other": 0, "fifo": 1, "rr": 2, "batch": 3, "idle": 5}),
		"CPUSchedulingPriority": integer(0, 99),

		"ProtectSystem": switched("full", "strict"), "ProtectHome": switched("read-only", "tmpfs"),
		"ProtectProc": word("noaccess", "invisible", "ptraceable", "default"), "ProcSubset": word("all", "pid"),
		"KeyringMode": word("inherit", "private", "shared"), "DevicePolicy": word("auto", "closed", "strict"),
		"DeviceAllow": devices,

		"BindPaths": binds, "BindReadOnlyPaths": binds, "TemporaryFileSystem": tmpfs,
		"RootDirectory": onePath, "NetworkNamespacePath": onePath,
		"StateDirectory": below, "CacheDirectory": below, "LogsDirectory": below, "RuntimeDirectory": below,
		"LoadCredential": credentials,

		"CapabilityBoundingSet": capabilities, "AmbientCapabilities": capabilities,
		"RestrictNamespaces":      namespaces,
		"RestrictAddressFamilies": filter(familyName, "address families such as AF_INET"),
		"SystemCallFilter":        filter(callName, "system calls or their groups, such as @system-service"),
		"SystemCallArchitectures": names(archName, "architectures such as native or x86-64"),
		"SystemCallErrorNumber":   errorNumber,
		"IPAddressAllow":          addresses, "IPAddressDeny": addresses,
		"SupplementaryGroups": names(groupName, "groups"),
	}
	for _, n := range []string{"MemoryMax", "MemoryHigh", "MemoryLow", "MemoryMin", "MemorySwapMax"} {
		table[n] = sizes
	}
	for _, n := range []string{"ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths"} {
		table[n] = paths
	}
	for _, n := range []string{
		"PrivateTmp", "PrivateDevices", "PrivateNetwork", "PrivateUsers", "PrivateMounts", "PrivateIPC", "ProtectClock",
		"ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "ProtectControlGroups", "ProtectHostname",
		"NoNewPrivileges", "LockPersonality", "MemoryDenyWriteExecute", "RestrictRealtime", "RestrictSUIDSGID", "RemoveIPC",
		"CPUSchedulingResetOnFork",
	} {
		table[n] = boolean
	}
	return table
}
