package transient

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// samples has values of every directive. Each is read by Check here, and taken by a real systemd elsewhere.
var samples = map[string][]any{
	"MemoryMax": {"512M", "2GiB", int64(1 << 30), "50%", "infinity"}, "MemoryHigh": {"1G", "12.5%"}, "MemoryLow": {"1M"}, "MemoryMin": {"1M"}, "MemorySwapMax": {"0", "infinity"},
	"CPUQuota": {"50%", "250%"}, "CPUWeight": {int64(50), "idle"}, "IOWeight": {int64(10)}, "AllowedCPUs": {"0-1", int64(0)}, "CPUAffinity": {"0"},
	"TasksMax": {int64(100), "10%", "infinity"}, "Slice": {"marbles-batch.slice"},
	"LimitCPU": {"10min", "60:120"}, "LimitCORE": {"0", "infinity"}, "LimitFSIZE": {"1G"}, "LimitMEMLOCK": {"64K"}, "LimitSTACK": {"8M"}, "LimitAS": {"4G:8G"},
	"LimitDATA": {"4G"}, "LimitNOFILE": {"1024:4096", int64(512)}, "LimitNPROC": {int64(1000)}, "LimitSIGPENDING": {int64(1000)}, "LimitMSGQUEUE": {"800K"},
	"Nice": {int64(10)}, "OOMScoreAdjust": {int64(500)}, "OOMPolicy": {"continue", "kill"},
	"IOSchedulingClass": {"idle", "best-effort"}, "IOSchedulingPriority": {int64(7)}, "CPUSchedulingPolicy": {"batch", "idle", "other"}, "CPUSchedulingPriority": {int64(0)}, "CPUSchedulingResetOnFork": {true},
	"PrivateTmp": {true, false, "yes"}, "PrivateDevices": {true}, "PrivateNetwork": {true}, "PrivateUsers": {true}, "PrivateMounts": {true}, "PrivateIPC": {true},
	"ProtectClock": {true}, "ProtectKernelLogs": {true}, "ProtectKernelModules": {true}, "ProtectKernelTunables": {true}, "ProtectControlGroups": {true}, "ProtectHostname": {true},
	"NoNewPrivileges": {true}, "LockPersonality": {true}, "MemoryDenyWriteExecute": {true}, "RestrictRealtime": {true}, "RestrictSUIDSGID": {true}, "RemoveIPC": {true},
	"ProtectSystem": {"strict", "full", true, false}, "ProtectHome": {"read-only", "tmpfs", true}, "ProtectProc": {"invisible"}, "ProcSubset": {"pid"},
	"KeyringMode": {"private", "shared"}, "DevicePolicy": {"closed"}, "DeviceAllow": {"/dev/null rw", []any{"char-pts rw", "/dev/zero"}},
	"ReadWritePaths": {"/var", []any{"/var", "-/nowhere"}}, "ReadOnlyPaths": {"/var"}, "InaccessiblePaths": {"/srv"}, "ExecPaths": {"/usr"}, "NoExecPaths": {"/srv"},
	"BindPaths": {"/var:/srv", "-/nowhere:/srv:norbind"}, "BindReadOnlyPaths": {[]any{"/var:/srv:rbind"}}, "TemporaryFileSystem": {"/srv", "/srv:size=1M,ro"},
	"RootDirectory": {"/"}, "NetworkNamespacePath": {"/proc/1/ns/net"},
	"StateDirectory": {"marbles-sample"}, "CacheDirectory": {"marbles-sample"}, "LogsDirectory": {[]any{"marbles-sample", "marbles-sample/b"}}, "RuntimeDirectory": {"marbles-sample"},
	"LoadCredential":        {"token:/etc/hostname"},
	"CapabilityBoundingSet": {"CAP_NET_BIND_SERVICE", "~CAP_SYS_ADMIN CAP_NET_ADMIN", ""}, "AmbientCapabilities": {[]any{"CAP_NET_BIND_SERVICE"}},
	"RestrictNamespaces": {true, "net mnt", "~user"}, "RestrictAddressFamilies": {"AF_UNIX AF_INET", "~AF_PACKET"},
	"SystemCallFilter": {"@system-service", "~@mount @clock"}, "SystemCallArchitectures": {"native"}, "SystemCallErrorNumber": {"EPERM", "kill", int64(13)},
	"IPAddressAllow": {"localhost 10.0.0.0/8 fd00::1"}, "IPAddressDeny": {"any", "link-local multicast"},
	"SupplementaryGroups": {"daemon", []any{"1", int64(2)}},
}

func TestSamplesAreRead(t *testing.T) {
	for _, name := range Names() {
		if len(samples[name]) == 0 {
			t.Errorf("there is no sample of %s", name)
		}
		for _, v := range samples[name] {
			p, err := Check(name, v)
			if err != nil || p.Name() != name || len(p.set) == 0 {
				t.Errorf("Check(%s, %v): %v", name, v, err)
			}
		}
	}
	if !slices.IsSorted(Names()) {
		t.Error("the names are not sorted")
	}
}

func TestCheckReads(t *testing.T) {
	for _, test := range []struct {
		name  string
		value any
		want  []assignment
	}{
		{"MemoryMax", "512M", one("MemoryMax", uint64(512<<20))},
		{"MemoryMax", "1.5GiB", one("MemoryMax", uint64(3<<29))},
		{"MemoryMax", "infinity", one("MemoryMax", uint64(math.MaxUint64))},
		{"MemoryMax", "100%", one("MemoryMaxScale", uint32(math.MaxUint32))},
		{"MemoryMax", int64(4096), one("MemoryMax", uint64(4096))},
		{"TasksMax", "50%", one("TasksMaxScale", uint32(1<<31))},
		{"CPUQuota", "12.5%", one("CPUQuotaPerSecUSec", uint64(125000))},
		{"CPUWeight", "idle", one("CPUWeight", uint64(0))},
		{"LimitNOFILE", "10:20", []assignment{{"LimitNOFILE", uint64(20)}, {"LimitNOFILESoft", uint64(10)}}},
		{"LimitCPU", "1h", []assignment{{"LimitCPU", uint64(3600)}, {"LimitCPUSoft", uint64(3600)}}},
		{"AllowedCPUs", "0-3,9", one("AllowedCPUs", []byte{0x0f, 0x02})},
		{"ProtectSystem", true, one("ProtectSystem", "yes")},
		{"PrivateTmp", "off", one("PrivateTmp", false)},
		{"CapabilityBoundingSet", "CAP_CHOWN CAP_KILL", one("CapabilityBoundingSet", uint64(1|1<<5))},
		{"CapabilityBoundingSet", []any{"~CAP_CHOWN"}, one("CapabilityBoundingSet", uint64(1<<41-2))},
		{"CapabilityBoundingSet", "~", one("CapabilityBoundingSet", uint64(1<<41-1))},
		{"AmbientCapabilities", []any{}, one("AmbientCapabilities", uint64(0))},
		{"RestrictNamespaces", true, one("RestrictNamespaces", uint64(0))},
		{"RestrictNamespaces", "~net", one("RestrictNamespaces", uint64(0x3e020000))},
		{"SystemCallFilter", []any{"~@mount", "@clock"}, one("SystemCallFilter", list{false, []string{"@mount", "@clock"}})},
		{"BindPaths", "-/a:/b:norbind", one("BindPaths", []bind{{"/a", "/b", true, 0}})},
		{"BindPaths", "/a b", one("BindPaths", []bind{{"/a b", "/a b", false, recursive}})},
		{"TemporaryFileSystem", "/a:ro", one("TemporaryFileSystem", []pair{{"/a", "ro"}})},
		{"IPAddressDeny", "any", one("IPAddressDeny", []network{{2, []byte{0, 0, 0, 0}, 0}, {10, make([]byte, 16), 0}})},
		{"IPAddressAllow", "10.1.2.3", one("IPAddressAllow", []network{{2, []byte{10, 1, 2, 3}, 32}})},
		{"SystemCallErrorNumber", "EPERM", one("SystemCallErrorNumber", int32(1))},
	} {
		p, err := Check(test.name, test.value)
		if diff := cmp.Diff(test.want, p.set, cmp.AllowUnexported(assignment{})); err != nil || diff != "" {
			t.Errorf("Check(%s, %v): %v\n%s", test.name, test.value, err, diff)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for _, test := range []struct {
		name  string
		value any
		want  string
	}{
		{"MemoryMaxx", "1G", `unknown directive "MemoryMaxx" (did you mean "MemoryMax"?)`},
		{"memorymax", "1G", `unknown directive "memorymax" (did you mean "MemoryMax"?)`},
		{"Zzzzzzzzzzzzzz", true, `unknown directive "Zzzzzzzzzzzzzz"`},
		{"RuntimeMaxSec", "1h", `directive "RuntimeMaxSec" cannot be set for a step: use its timeout`},
		{"User", "x", `directive "User" cannot be set for a step: use the workflow's user`},
		{"MemoryMax", "lots", `MemoryMax: "lots" is not a size in bytes such as 512M or 2GiB, a percentage of the machine's, or infinity`},
		{"MemoryMax", "1GB", `MemoryMax: "1GB" is not a size`}, {"MemoryMax", "-1", "is not a size"}, {"MemoryMax", "101%", "is not a size"},
		{"MemoryMax", "99999999999E", "is not a size"}, {"MemoryMax", "", "is not a size"}, {"MemoryMax", nil, "is not a size"}, {"MemoryMax", []any{"1G"}, "is not a size"},
		{"MemoryMax", 1.5, "1.5 is not a size"}, {"MemoryMax", "1e3", "is not a size"}, {"MemoryMax", "+5", "is not a size"},
		{"CPUQuota", int64(50), "CPUQuota: 50 is not a percentage of one CPU such as 50% or 150%"}, {"CPUQuota", "0%", "is not a percentage"},
		{"CPUWeight", int64(0), "is not a number from 1 to 10000, or idle"}, {"TasksMax", int64(0), "is not a number above 0"},
		{"LimitNOFILE", "20:10", "has a soft limit above the hard one"}, {"LimitCPU", "soon", "is not a time"},
		{"Nice", int64(20), "Nice: 20 is not a number from -20 to 19"},
		{"PrivateTmp", "maybe", `PrivateTmp: "maybe" is not true or false`}, {"PrivateTmp", int64(1), "1 is not true or false"},
		{"ProtectSystem", "hard", "is not one of true, false, full, strict"}, {"DevicePolicy", "open", "is not one of auto, closed, strict"},
		{"ReadWritePaths", "var", "is not an absolute path"}, {"ReadWritePaths", "/a/../b", "is not an absolute path"}, {"ReadWritePaths", []any{}, "is not a path"},
		{"RootDirectory", "x", "is not an absolute path"}, {"BindPaths", "/a:/b:maybe", "is not FROM"}, {"TemporaryFileSystem", "x", "is not PATH"},
		{"StateDirectory", "/x", "is not a relative path"}, {"StateDirectory", "../x", "is not a relative path"}, {"StateDirectory", "private", "is not a relative path"},
		{"LoadCredential", "token", "is not NAME:PATH"}, {"LoadCredential", "a/b:/x", "is not NAME:PATH"},
		{"CapabilityBoundingSet", "NET_ADMIN", "is not a capability"}, {"RestrictNamespaces", "time", "is not true, false, or some of"},
		{"RestrictAddressFamilies", "inet", "is not one of address families"}, {"SystemCallFilter", "a b;c", "is not one of system calls"},
		{"SystemCallFilter", []any{"@mount", "~@clock"}, "is not one of system calls"},
		{"SystemCallErrorNumber", "EWHAT", "is not an error such as EPERM"}, {"IPAddressDeny", "10.0.0.0/33", "is not any, localhost"},
		{"IPAddressAllow", "example.org", "is not any, localhost"}, {"Slice", "batch", "is not the name of a slice"}, {"AllowedCPUs", "3-1", "is not CPUs"},
		{"SupplementaryGroups", "a:b", "is not one of groups"}, {"DeviceAllow", "/etc/passwd r", "is not a device"},
	} {
		_, err := Check(test.name, test.value)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Check(%s, %v): got %v, want %s", test.name, test.value, err, test.want)
		}
	}
}

func TestElsewhereIsNowhere(t *testing.T) {
	for name := range elsewhere {
		if slices.Contains(Names(), name) {
			t.Errorf("%s can be set, and cannot", name)
		}
	}
}
