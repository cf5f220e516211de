package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"marbles/cmd/internal/catalog"
)

var now = time.Date(2026, 12, 1, 5, 0, 0, 0, time.UTC)

func options(dir string) Options {
	return Options{
		Home: "/home/ann", Workspace: dir, Now: now, Local: time.UTC,
		Account: func(name string) (string, bool) {
			home, ok := map[string]string{"root": "/root", "www-data": "/var/www", "ann": "/home/ann"}[name]
			return home, ok
		},
	}
}

// write puts files into a folder, and is that folder.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// read imports files, and loads what comes out as the service would.
func read(t *testing.T, files map[string]string, names ...string) (*Plan, *catalog.Catalog) {
	t.Helper()
	dir := writeFiles(t, files)
	for i := range names {
		names[i] = filepath.Join(dir, names[i])
	}
	p, err := Read(names, options(dir))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out", "imported.yaml")
	if err := os.MkdirAll(filepath.Dir(out), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(out, []byte(p.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := catalog.Locate(out, dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Load([]catalog.Source{source}, catalog.Options{Local: time.UTC})
	if err != nil {
		t.Fatalf("what was imported does not load: %v\n%s", err, p.Text)
	}
	return p, c
}

// brieflyJobs are the jobs of a plan as one line each: name, user, steps, and what starts them.
func brieflyJobs(p *Plan) (all []string) {
	for _, j := range p.Jobs {
		text := j.Name
		if j.User != "" {
			text += " as " + j.User
		}
		for _, s := range j.Steps {
			if s.Shell != "" {
				text += fmt.Sprintf(" · sh %q", s.Shell)
			} else {
				text += fmt.Sprintf(" · %q", s.Argv)
			}
		}
		for _, tr := range j.Triggers {
			text += " @ " + tr.Cron
			if tr.Every > 0 {
				text += "every " + interval(tr.Every)
			}
			if tr.Zone != "" {
				text += " in " + tr.Zone
			}
			if tr.Jitter > 0 {
				text += " ± " + interval(tr.Jitter)
			}
			if tr.Never {
				text += " once"
			}
		}
		for _, w := range j.Watches {
			text += " watching " + w.Glob
		}
		all = append(all, text)
	}
	return all
}

// brieflyNotes are the places of a plan's notes with their effect.
func brieflyNotes(p *Plan, effects ...Effect) (all []string) {
	for _, n := range p.Notes {
		for _, e := range effects {
			if n.Effect == e && n.Line > 0 {
				all = append(all, fmt.Sprintf("%s:%d %s", filepath.Base(n.File), n.Line, e))
			}
		}
	}
	return all
}

func TestCrontabs(t *testing.T) {
	tests := []struct {
		name, file, text string
		jobs, notes      []string
	}{
		{
			name: "the system's own", file: "etc/crontab",
			text: "# system-wide\nSHELL=/bin/sh\nPATH=/usr/local/sbin:/usr/bin\n\n# m h dom mon dow user\tcommand\n" +
				"17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly\n" +
				"25 6\t* * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }\n" +
				"47 6\t* * 7\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.weekly; }\n",
			jobs: []string{
				`cron-hourly as root · sh "cd / && run-parts --report /etc/cron.hourly" @ 17 * * * * once`,
				`cron-daily as root · sh "test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }" @ 25 6 * * * once`,
				`cron-weekly as root · sh "test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.weekly; }" @ 47 6 * * 7 once`,
			},
			notes: []string{"crontab:1 dropped"},
		},
		{
			name: "e2scrub_all", file: "cron.d/e2scrub_all",
			text: "30 3 * * 0 root test -e /run/systemd/system || SERVICE_MODE=1 /usr/lib/x86_64-linux-gnu/e2fsprogs/e2scrub_all_cron\n" +
				"10 3 * * * root test -e /run/systemd/system || SERVICE_MODE=1 /sbin/e2scrub_all -A -r\n",
			jobs: []string{
				`e2scrub-all as root · sh "test -e /run/systemd/system || SERVICE_MODE=1 /usr/lib/x86_64-linux-gnu/e2fsprogs/e2scrub_all_cron" @ 30 3 * * 0 once`,
				`e2scrub-all-2 as root · sh "test -e /run/systemd/system || SERVICE_MODE=1 /sbin/e2scrub_all -A -r" @ 10 3 * * * once`,
			},
		},
		{
			name: "certbot", file: "cron.d/certbot",
			text: "# Upstream recommends attempting renewal twice a day\n#\n# Eventually, this will be an opportunity to validate certificates\n\nSHELL=/bin/sh\n" +
				"0 */12 * * * root test -x /usr/bin/certbot -a \\! -d /run/systemd/system && perl -e 'sleep int(rand(43200))' && certbot -q renew --no-random-sleep-on-renew\n",
			jobs: []string{
				`certbot as root · sh "test -x /usr/bin/certbot -a \\! -d /run/systemd/system && perl -e 'sleep int(rand(43200))' && certbot -q renew --no-random-sleep-on-renew" @ 0 */12 * * * once`,
			},
			notes: []string{"certbot:1 dropped"},
		},
		{
			name: "sysstat", file: "cron.d/sysstat",
			text: "PATH=/usr/lib/sysstat:/usr/sbin\n# Activity reports every 10 minutes everyday\n5-55/10 * * * * root command -v debian-sa1 > /dev/null && debian-sa1 1 1\n",
			jobs: []string{`sysstat as root · sh "command -v debian-sa1 > /dev/null && debian-sa1 1 1" @ 5-55/10 * * * * once`},
		},
		{
			name: "a person's", file: "mine",
			text: "MAILTO=ann@example.com\nCRON_TZ=Europe/Berlin\n@daily $HOME/bin/backup.sh --all\n@reboot /opt/boot\n-0 9 * * mon-fri /usr/bin/mail -s Good bob%Dear Bob,%100\\% yours\n" +
				"#0 1 * * * /old/thing now\nnonsense\n0 0 30 2 * never\n*/15 2 * * * env A=1 nice -n 5 /srv/x.py >/dev/null 2>&1\n0~30 4 * * * chance\n",
			jobs: []string{
				`backup · sh "$HOME/bin/backup.sh --all" @ @daily in Europe/Berlin once`,
				`boot · sh "/opt/boot"`,
				"mail · sh \"{ /usr/bin/mail -s Good bob\\n} <<'INPUT'\\nDear Bob,\\n100% yours\\nINPUT\" @ 0 9 * * mon-fri in Europe/Berlin once",
				`x · sh "env A=1 nice -n 5 /srv/x.py >/dev/null 2>&1" @ */15 2 * * * in Europe/Berlin once`,
				`chance · sh "chance" @ 0 4 * * * in Europe/Berlin ± 30m once`,
			},
			notes: []string{"mine:1 lost", "mine:4 lost", "mine:5 dropped", "mine:6 dropped", "mine:7 lost", "mine:8 lost"},
		},
		{
			name: "told by its users", file: "table",
			text: "0 1 * * * root /usr/bin/one\n0 2 * * * www-data /usr/bin/two\n",
			jobs: []string{`one as root · sh "/usr/bin/one" @ 0 1 * * * once`, `two as www-data · sh "/usr/bin/two" @ 0 2 * * * once`},
		},
		{
			name: "hostile", file: "bad",
			text: "0 1 * * * caf\xe9\n0 1 * * * a\x00b\n0 2 * * * echo \"open\n0 3 * * * - # : [ { %\n0 4 * * * true\n" + strings.Repeat("* ", 50000) + "\n",
			jobs: []string{
				`echo · ["/bin/sh" "-c" "echo \"open"] @ 0 2 * * * once`,
				"job · sh \"{ - # : [ { \\n} <<'INPUT'\\n\\nINPUT\" @ 0 3 * * * once",
				`true · sh "true" @ 0 4 * * * once`,
			},
			notes: []string{"bad:1 lost", "bad:2 lost", "bad:6 lost"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, c := read(t, map[string]string{tt.file: tt.text}, tt.file)
			if diff := cmp.Diff(tt.jobs, brieflyJobs(p)); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.notes, brieflyNotes(p, Lost, Dropped)); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
			for _, s := range p.Compare {
				if len(s.Rows) != Instants || c.Schedule(s.Key) == nil {
					t.Errorf("schedule %s has %d instants, or is not there", s.Key, len(s.Rows))
				}
				for _, r := range s.Rows {
					if r.Why != "" {
						t.Errorf("schedule %s: old %s, new %s: %s", s.Key, r.Old, r.New, r.Why)
					}
				}
			}
		})
	}
}

func TestTimers(t *testing.T) {
	logrotate := "[Unit]\nDescription=Rotate log files\nDocumentation=man:logrotate(8)\nConditionACPower=true\n\n[Service]\nType=oneshot\nExecStart=/usr/sbin/logrotate /etc/logrotate.conf\n\nNice=19\nPrivateDevices=true\nProtectHome=no\n"
	tests := []struct {
		name  string
		files map[string]string
		file  string
		jobs  []string
		notes []string
	}{
		{
			name: "logrotate", file: "logrotate.timer",
			files: map[string]string{
				"logrotate.timer":   "[Unit]\nDescription=Daily rotation of log files\n\n[Timer]\nOnCalendar=daily\nRandomizedDelaySec=1h\nPersistent=true\nAccuracySec=1h\n\n[Install]\nWantedBy=timers.target\n",
				"logrotate.service": logrotate,
			},
			jobs:  []string{`logrotate as root · ["/usr/sbin/logrotate" "/etc/logrotate.conf"] @ 0 0 * * * ± 1h`},
			notes: []string{"logrotate.service:4 lost", "logrotate.service:10 lost", "logrotate.service:11 lost"},
		},
		{
			name: "apt-daily, whose delay is as long as the time between two", file: "apt-daily.timer",
			files: map[string]string{
				"apt-daily.timer":   "[Timer]\nOnCalendar=*-*-* 6,18:00\nRandomizedDelaySec=12h\nPersistent=true\n",
				"apt-daily.service": "[Service]\nExecStartPre=-/usr/lib/apt/apt-helper wait-online\nExecStart=/usr/lib/apt/apt.systemd.daily update\n",
			},
			jobs: []string{`apt-daily as root · ["/usr/lib/apt/apt-helper" "wait-online"] · ["/usr/lib/apt/apt.systemd.daily" "update"] @ 0 6,18 * * * ± 719m`},
		},
		{
			name: "tmpfiles-clean", file: "clean.timer",
			files: map[string]string{
				"clean.timer":           "[Timer]\nOnBootSec=15min\nOnUnitActiveSec=1d\nUnit=systemd-clean.service\n",
				"systemd-clean.service": "[Service]\nExecStart=systemd-tmpfiles --clean\n",
			},
			jobs: []string{`clean as root · ["systemd-tmpfiles" "--clean"] @ every 1d`},
		},
		{
			name: "drop-ins, templates, variables", file: "dump@main-db.timer",
			files: map[string]string{
				"dump@main-db.timer":                  "[Timer]\nOnCalendar=daily\n",
				"dump@main-db.timer.d/10.conf":        "[Timer]\nOnCalendar=\nOnCalendar=Mon..Fri 02:30 Europe/Berlin\nOnCalendar=*-*~01\n",
				"dump@main-db.timer.d/ignored.txt":    "[Timer]\nOnCalendar=hourly\n",
				"dump@.service":                       "[Service]\nUser=ann\nWorkingDirectory=~\nEnvironment=\"A=b c\" D=%i\nEnvironmentFile=-/etc/default/dump\nExecStart=/bin/dump \"${A}\" $OPTS -- '%I' 100%% \\\n  ; second\nExecStart=/bin/third ; /bin/fourth\nMemoryMax=512M\nCPUQuota=150%\nTimeoutStartSec=90\n",
				"dump@.service.d/override.conf":       "[Service]\nExecStart=\nExecStart=/bin/dump \"${A}\" $OPTS -- '%I' $$5\n",
				"dump@main-db.service.d/z.conf":       "[Service]\nExecStopPost=/bin/clean\n",
				"dump@other.service.d/not-ours.conf":  "[Service]\nExecStart=/bin/false\n",
				"dump@main-db.timer.d/20-broken.conf": "nonsense\n[Timer]\nPersistent\n",
			},
			jobs: []string{"dump-main-db as ann · sh \"set -a; if [ -r /etc/default/dump ]; then . /etc/default/dump; fi; set +a\\nset -f\\nexec /bin/dump \\\"${A-}\\\" ${OPTS-} -- main/db '$'5\" · " +
				"sh \"set -a; if [ -r /etc/default/dump ]; then . /etc/default/dump; fi; set +a\\nexec /bin/clean\" @ 30 2 * * 1-5 in Europe/Berlin once"},
			notes: []string{"20-broken.conf:1 lost", "20-broken.conf:3 lost", "10.conf:4 lost"},
		},
		{
			name: "without its service", file: "gone.timer",
			files: map[string]string{"gone.timer": "[Timer]\nOnCalendar=daily\n"},
			notes: []string{"gone.timer:2 lost"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, _ := read(t, tt.files, tt.file)
			if diff := cmp.Diff(tt.jobs, brieflyJobs(p)); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			got := brieflyNotes(p, Lost)
			if tt.notes != nil {
				for _, want := range tt.notes {
					if !strings.Contains(strings.Join(got, "\n"), want) && tt.name != "without its service" {
						t.Errorf("nothing says %q: %q", want, got)
					}
				}
			}
			if tt.jobs == nil && len(p.Notes) == 0 {
				t.Error("a timer went without a word")
			}
		})
	}
}

// TestEveryLineIsNamed: of a unit, each assignment is carried over or named.
func TestEveryLineIsNamed(t *testing.T) {
	text := "[Unit]\nAfter=a.service\nConditionPathExists=/x\nOnFailure=mail@%n.service\n[Service]\nExecStart=/bin/true\nProtectSystem=strict\nFrobnicate=yes\nRestart=always\nExecStop=/bin/x\nLoadCredential=a:/b\nStandardOutput=append:/var/log/x\n[Frob]\nA=b\n"
	p, _ := read(t, map[string]string{"x.timer": "[Timer]\nOnCalendar=daily\nOnBootSec=5m\nWakeSystem=yes\nFrob=1\n", "x.service": text}, "x.timer")
	named := map[string]bool{}
	for _, n := range p.Notes {
		if n.Effect == Lost {
			named[fmt.Sprintf("%s:%d", filepath.Base(n.File), n.Line)] = true
			if n.Next == "" && n.Line > 0 {
				t.Errorf("%s says no next step: %s", n.Place, n.What)
			}
		}
	}
	for _, want := range []string{"x.service:2", "x.service:3", "x.service:4", "x.service:7", "x.service:8", "x.service:9", "x.service:10", "x.service:11", "x.service:12", "x.service:14", "x.timer:3", "x.timer:4", "x.timer:5"} {
		if !named[want] {
			t.Errorf("%s is lost, and nothing says so", want)
		}
	}
}

const plistHead = `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
`

func TestPlists(t *testing.T) {
	p, c := read(t, map[string]string{"a.plist": plistHead + `<dict>
<key>Label</key><string>org.example.backup</string>
<key>Program</key><string>/usr/bin/rsync</string>
<key>ProgramArguments</key><array><string>rsync</string><string>-a</string><string>a, b: #</string></array>
<key>StartCalendarInterval</key><array><dict><key>Hour</key><integer>2</integer><key>Minute</key><integer>30</integer></dict>
<dict><key>Weekday</key><integer>7</integer><key>Day</key><integer>1</integer><key>Hour</key><integer>3</integer><key>Minute</key><integer>0</integer></dict></array>
<key>EnvironmentVariables</key><dict><key>A</key><string>yes</string></dict>
<key>WorkingDirectory</key><string>/srv</string>
<key>RunAtLoad</key><true/>
<key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
<key>Frob</key><integer>1</integer>
</dict></plist>
`}, "a.plist")
	want := []string{`backup · ["/usr/bin/rsync" "-a" "a, b: #"] @ 30 2 * * * @ 0 3 1 * 0`}
	if diff := cmp.Diff(want, brieflyJobs(p)); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a.plist:12 lost", "a.plist:13 lost", "a.plist:14 lost"}, brieflyNotes(p, Lost)); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if got := c.Workflow("backup").Env; !cmp.Equal(got, []string{"A=yes"}) || c.Workflow("backup").Workdir != "/srv" {
		t.Errorf("env is %q in %s", got, c.Workflow("backup").Workdir)
	}
	for _, s := range p.Compare {
		for _, r := range s.Rows {
			if r.Why != "" {
				t.Errorf("%s: old %s, new %s", s.Key, r.Old, r.New)
			}
		}
	}
}

func TestPlistsInText(t *testing.T) {
	p, _ := read(t, map[string]string{"b.plist": `{ Label = "com.example.sweep"; ProgramArguments = (/bin/sweep, "-x y"); StartInterval = 300; Disabled = YES; }`}, "b.plist")
	if diff := cmp.Diff([]string{`sweep · ["/bin/sweep" "-x y"] @ every 5m`}, brieflyJobs(p)); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if !p.Jobs[0].Triggers[0].Disabled {
		t.Error("a disabled job is enabled")
	}
}

func TestWatchPaths(t *testing.T) {
	dir := writeFiles(t, nil)
	name := filepath.Join(dir, "c.plist")
	text := plistHead + "<dict><key>Label</key><string>w</string><key>Program</key><string>/bin/w</string><key>WatchPaths</key><array><string>" +
		dir + "/in/a.txt</string><string>/etc/hosts</string></array></dict></plist>"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Read([]string{name}, options(dir))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`w · ["/bin/w"] watching in/a.txt`}, brieflyJobs(p)); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c.plist:4 lost"}, brieflyNotes(p, Lost)); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// TestHostileFiles: each is refused with its name, at once.
func TestHostileFiles(t *testing.T) {
	circle := append([]byte("bplist00\xa1\x00"), 8) // an array of itself, and where it stands
	trailer := make([]byte, 32)
	trailer[6], trailer[7], trailer[15], trailer[31] = 1, 1, 1, 10
	circle = append(circle, trailer...)

	bomb := []byte("bplist00") // each array holds the next one twice
	offsets := []byte{}
	for i := range 40 {
		offsets = append(offsets, byte(len(bomb)))
		bomb = append(bomb, 0xa2, byte(i+1), byte(i+1))
	}
	offsets = append(offsets, byte(len(bomb)))
	bomb = append(bomb, 0x09)
	table := len(bomb)
	bomb = append(bomb, offsets...)
	trailer = make([]byte, 32)
	trailer[6], trailer[7], trailer[15], trailer[31] = 1, 1, 41, byte(table)
	bomb = append(bomb, trailer...)

	dir := writeFiles(t, map[string]string{
		"circle.plist": string(circle), "bomb.plist": string(bomb), "deep.plist": plistHead + strings.Repeat("<array>", 100000),
		"text.plist": strings.Repeat("(", 500000), "short.plist": "bplist00", "list.plist": plistHead + "<array/></plist>",
		"huge": strings.Repeat("x", maxBytes+1), "binary": strings.Repeat("\x00\x01", 100), "big.plist": "<?xml" + strings.Repeat(" ", maxPlist),
	})
	if err := os.Symlink("loop.timer", filepath.Join(dir, "loop.timer")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"circle.plist", "bomb.plist", "deep.plist", "text.plist", "short.plist", "list.plist", "huge", "binary", "big.plist", "loop.timer", "missing", "/dev/null"} {
		path := name
		if !filepath.IsAbs(name) {
			path = filepath.Join(dir, name)
		}
		p, err := Read([]string{path}, options(dir))
		if err == nil {
			t.Errorf("%s is read: %+v", name, p)
			continue
		}
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
}

// TestLargeFilesEnd: what is as large as may be is read, without work that grows faster than it.
func TestLargeFilesEnd(t *testing.T) {
	many := func(line string) string { return strings.Repeat(line, (maxBytes-1000)/len(line)) }
	for name, text := range map[string]string{
		"same":        many("0 1 * * * /bin/x '\n")[:1<<17],
		"refused":     many("0 1 * * * root/x -y\n")[:1<<17],
		"percent":     many("0 1 * * * " + strings.Repeat("%", 10000) + "\n")[:1<<17],
		"nothing":     many("x\n"),
		"long":        many("* "),
		"going.timer": "[Timer]\n" + many("a \\\n"),
		"what.timer":  "[Timer]\nOnCalendar=" + many("0,") + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeFiles(t, map[string]string{name: text, "what.service": "[Service]\nExecStart=/bin/x " + strings.Repeat("%q", 5000)})
			p, err := Read([]string{filepath.Join(dir, name)}, options(dir))
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Notes) == 0 {
				t.Error("nothing is said")
			}
		})
	}
	var text strings.Builder
	text.WriteString(plistHead + "<dict><key>Label</key><string>x</string><key>Program</key><string>/x</string>")
	for i := 0; text.Len() < maxPlist-1000; i++ {
		fmt.Fprintf(&text, "<key>k%d</key><true/>", i)
	}
	dir := writeFiles(t, map[string]string{"x.plist": text.String() + "</dict></plist>"})
	if p, err := Read([]string{filepath.Join(dir, "x.plist")}, options(dir)); err != nil || len(p.Notes) > 200 {
		t.Errorf("%v, %d notes", err, len(p.Notes))
	}
}

// TestDropInsInACircle: links that lead back end, and are named.
func TestDropInsInACircle(t *testing.T) {
	dir := writeFiles(t, map[string]string{"x.timer": "[Timer]\nOnCalendar=daily\n", "x.service": "[Service]\nExecStart=/bin/true\n", "x.timer.d/keep": ""})
	for link, to := range map[string]string{"x.timer.d/a.conf": "a.conf", "x.timer.d/b.conf": "..", "x.service.d": "x.timer.d"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Read([]string{filepath.Join(dir, "x.timer")}, options(dir))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Jobs) != 1 {
		t.Errorf("there are %d jobs, want 1", len(p.Jobs))
	}
	named := 0
	for _, n := range p.Notes {
		if strings.HasSuffix(n.File, "a.conf") || strings.HasSuffix(n.File, "b.conf") {
			named++
		}
	}
	if named < 2 {
		t.Errorf("drop-ins that cannot be read are named %d times: %+v", named, p.Notes)
	}
}

// TestNamesAreUnique: equal names, and those that are none, become different ones, the same each time.
func TestNamesAreUnique(t *testing.T) {
	text := "0 1 * * * /a/x.sh\n0 2 * * * /b/x.sh\n0 3 * * * /c/x-2\n0 4 * * * ...\n0 5 * * * '!!!'\n0 6 * * * " + strings.Repeat("n", 300) + "\n"
	first, _ := read(t, map[string]string{"t": text}, "t")
	want := []string{"x", "x-2", "x-2-2", "job", "job-2", strings.Repeat("n", 60)}
	var got []string
	for _, j := range first.Jobs {
		got = append(got, j.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// TestCommandsAreKept: whatever a command is, it comes back out of the catalog as it was.
func TestCommandsAreKept(t *testing.T) {
	for _, command := range []string{
		`echo "a: b" # c`, `echo 'it''s' \\`, `: > x`, `- x`, `true`, `123`, `~/bin/x`, `[ -x /a ] && /a`, `echo é → ☃`, `echo	tab`, `& x`, `*x`, `!x`, `@x`, "`x`", `"q"`, `{ x; }`, `yes`, `echo a:`, `null`,
	} {
		p, c := read(t, map[string]string{"t": "0 1 * * * " + command + "\n"}, "t")
		step := c.Workflow(p.Jobs[0].Name).Steps[0].Command
		got := step.Shell
		if len(step.Argv) == 3 {
			got = step.Argv[2]
		}
		if got != command {
			t.Errorf("%s comes back as %s:\n%s", command, got, p.Text)
		}
	}
}

// A timer whose service is missing, or no file that could be read, is said to lack that, and its times nothing else.
func TestTimerWithoutItsService(t *testing.T) {
	dir := writeFiles(t, map[string]string{"gone.timer": "[Timer]\nOnCalendar=daily\n", "bad.timer": "[Timer]\nOnCalendar=daily\n"})
	if err := os.Mkdir(filepath.Join(dir, "bad.service"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := Read([]string{filepath.Join(dir, "gone.timer"), filepath.Join(dir, "bad.timer")}, options(dir))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, n := range p.Notes {
		said = append(said, strings.ReplaceAll(n.What, dir, ""))
	}
	want := []string{
		"gone.service, which it starts, is neither beside it nor where systemd looks",
		"OnCalendar=daily: there is nothing that it could start",
		"bad.service, which it starts: cannot read the file: open /bad.service: it is no regular file",
		"OnCalendar=daily: there is nothing that it could start",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
