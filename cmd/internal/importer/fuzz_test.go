package importer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"marbles/cmd/internal/catalog"
)

// pieces are what tables, units and plists are made of, and what YAML, shells and terminals trip over.
var pieces = []string{
	"*", "*/5", "0", "7", "1-5", "~", "@daily", "@reboot", "root", "ann", "nobody-here", "/bin/x", "echo", "%", `\%`, "'", `"`, "`", "$A", "${A}",
	"#", ": ", "- ", "|", "&", "{", "}", "[", "]", "\t", "\\", "\x1b[31m", "é", "\xff", "\x00", "\u2028", "\ufeff", "MAILTO=", "SHELL=/bin/bash", "CRON_TZ=",
	"Europe/Berlin", "=", "A=b", "\r", "true", "null", "INPUT", "<<", ";", "-", "@", "+", "!", "[Timer]", "[Service]", "[Unit]", "OnCalendar=", "daily", "Mon..Fri",
	"*-*-*", "10:00", "*:0/7:30", "OnUnitActiveSec=", "1h 5min", "ExecStart=", "ExecStart=-", "User=", "Environment=", "RandomizedDelaySec=", "99d", "%i", "%%", "%q",
	"<dict>", "</dict>", "<key>Label</key>", "<string>", "</string>", "<array>", "{ Label = x; }", "(a, b)",
}

// TestWhateverIsReadLoads: no input breaks it, and what it makes of any is a catalog that loads.
func TestWhateverIsReadLoads(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			sep := rapid.SampledFrom([]string{" ", " ", ""}).Draw(t, "between")
			line := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 10).Draw(t, "pieces"), sep)
			switch rapid.IntRange(0, 3).Draw(t, "line") {
			case 0:
				return "5 4 * * * " + line
			case 1:
				return "ExecStart=" + line
			}
			return line
		}), 0, 8).Draw(t, "lines")
		text := strings.Join(lines, "\n")
		kind := rapid.SampledFrom(append(Kinds(), "")).Draw(t, "kind")
		if kind == Timer {
			text = "[Timer]\nOnCalendar=daily\n" + text
			if err := os.WriteFile(filepath.Join(dir, "x.service"), []byte("[Service]\nExecStart=/bin/true\n"+strings.Join(lines, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		name := filepath.Join(dir, "x.timer")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o.From = kind
		p, err := Read([]string{name}, o)
		if err != nil {
			if strings.Contains(err.Error(), "cannot check") {
				t.Fatal(err)
			}
			return // named as a whole
		}
		if _, err := catalog.LoadText("x.yaml", []byte(p.Text), dir, catalog.Options{}); err != nil {
			t.Fatalf("%v\n%s", err, p.Text)
		}
		for _, n := range p.Notes {
			if n.Effect == "" || n.What == "" || n.File == "" {
				t.Fatalf("a note says nothing: %+v", n)
			}
		}
	})
}
