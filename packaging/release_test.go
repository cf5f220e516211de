package packaging

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// dist is a folder in which packaging/release has built: .ci/packages names it.
func dist(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("MARBLES_DIST")
	if dir == "" {
		t.Skip("MARBLES_DIST names no folder with a release: .ci/packages runs this")
	}
	return dir
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations"`
	Platform    *struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	} `json:"platform"`
}

// strictly decodes JSON of which every field is known: a slip in a name is found.
func strictly(t *testing.T, data []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

// TestImage reads the OCI layout as image-spec 1.0 describes it, every blob against its descriptor.
func TestImage(t *testing.T) {
	file := glob(t, filepath.Join(dist(t), "marbles-*-oci.tar"))[0]
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if content[strings.TrimPrefix(h.Name, "./")], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(content["oci-layout"]); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout is %q", got)
	}
	used := map[string]bool{}
	blob := func(d descriptor, kind string) []byte {
		t.Helper()
		if d.MediaType != "application/vnd.oci.image."+kind {
			t.Errorf("the media type is %s, want %s", d.MediaType, kind)
		}
		name := "blobs/" + strings.Replace(d.Digest, ":", "/", 1)
		data := content[name]
		if got := fmt.Sprintf("sha256:%x", sha256.Sum256(data)); got != d.Digest || int64(len(data)) != d.Size {
			t.Errorf("%s: %d bytes of %s, want %d", name, len(data), got, d.Size)
		}
		used[name] = true
		return data
	}
	type index struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []descriptor `json:"manifests"`
	}
	var top, images index
	strictly(t, content["index.json"], &top)
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] == "" {
		t.Fatalf("the layout names no image: %s", content["index.json"])
	}
	strictly(t, blob(top.Manifests[0], "index.v1+json"), &images)
	if top.SchemaVersion != 2 || images.SchemaVersion != 2 || len(images.Manifests) == 0 {
		t.Errorf("schema versions %d and %d, %d images", top.SchemaVersion, images.SchemaVersion, len(images.Manifests))
	}
	for _, m := range images.Manifests {
		var manifest struct {
			SchemaVersion int          `json:"schemaVersion"`
			MediaType     string       `json:"mediaType"`
			Config        descriptor   `json:"config"`
			Layers        []descriptor `json:"layers"`
		}
		strictly(t, blob(m, "manifest.v1+json"), &manifest)
		var config struct {
			Created      string `json:"created"`
			Architecture string `json:"architecture"`
			OS           string `json:"os"`
			Config       struct {
				User, WorkingDir, StopSignal string
				Env, Entrypoint, Cmd         []string
				Volumes                      map[string]struct{}
				Labels                       map[string]string
			} `json:"config"`
			RootFS struct {
				Type    string   `json:"type"`
				DiffIDs []string `json:"diff_ids"`
			} `json:"rootfs"`
			History []map[string]string `json:"history"`
		}
		strictly(t, blob(manifest.Config, "config.v1+json"), &config)
		if m.Platform == nil || config.Architecture != m.Platform.Architecture || config.OS != "linux" || m.Platform.OS != "linux" {
			t.Errorf("platform %+v of an image for %s/%s", m.Platform, config.OS, config.Architecture)
		}
		if len(manifest.Layers) != 1 || len(config.RootFS.DiffIDs) != 1 {
			t.Fatalf("%d layers, diff ids %q", len(manifest.Layers), config.RootFS.DiffIDs)
		}
		layer := gunzip(t, blob(manifest.Layers[0], "layer.v1.tar+gzip"))
		if got := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)); got != config.RootFS.DiffIDs[0] {
			t.Errorf("the layer is %s, and its diff id %s", got, config.RootFS.DiffIDs[0])
		}
		owners := map[string]string{}
		for r := tar.NewReader(bytes.NewReader(layer)); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			owners[strings.TrimSuffix(h.Name, "/")] = fmt.Sprintf("%d:%d %04o", h.Uid, h.Gid, h.Mode)
		}
		for name, want := range map[string]string{
			"usr/bin/marbles": "0:0 0755", "etc/marbles/jobs": "0:0 0755", "tmp": "0:0 1777",
			"var/lib/marbles": config.Config.User + " 0700", strings.TrimPrefix(config.Config.Entrypoint[0], "/"): "0:0 0755",
		} {
			if owners[name] != want {
				t.Errorf("%s is %q in the layer, want %q", name, owners[name], want)
			}
		}
	}
	for name, data := range content {
		if strings.HasPrefix(name, "blobs/") && len(data) > 0 && !used[name] {
			t.Errorf("nothing refers to %s", name)
		}
	}
}

func gunzip(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestChecksums: SHA256SUMS is over every file of a release.
func TestChecksums(t *testing.T) {
	dir := dist(t)
	f, err := os.Open(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	listed := map[string]bool{"SHA256SUMS": true}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		sum, name, _ := strings.Cut(lines.Text(), "  ")
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			t.Errorf("%s is not what SHA256SUMS says: %v", name, err)
		}
		listed[name] = true
	}
	for _, file := range glob(t, filepath.Join(dir, "*")) {
		if !listed[filepath.Base(file)] {
			t.Errorf("%s is not in SHA256SUMS", file)
		}
	}
}

// TestArchives: each has the program and what belongs to its system.
func TestArchives(t *testing.T) {
	for _, file := range glob(t, filepath.Join(dist(t), "marbles-*-*-*.tar.gz")) {
		name := strings.TrimSuffix(filepath.Base(file), ".tar.gz")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		modes := map[string]int64{}
		for r := tar.NewReader(bytes.NewReader(gunzip(t, data))); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			modes[strings.TrimPrefix(h.Name, "./"+name+"/")] = h.Mode
		}
		want := map[string]int64{
			"marbles": 0o755, "LICENSE": 0o644, "THIRD-PARTY": 0o644, "README.md": 0o644, "marbles.yaml": 0o644,
			"man/man1/marbles.1": 0o644, "man/man5/marbles.yaml.5": 0o644, "completions/_marbles": 0o644,
		}
		if strings.Contains(name, "linux") {
			want["systemd/marbles.service"], want["systemd/marbles@.service"] = 0o644, 0o644
			want["systemd/since/254.conf"], want["sysusers.d/marbles.conf"] = 0o644, 0o644
		} else {
			want["launchd/com.foundry.marbles.plist"] = 0o644
		}
		for entry, mode := range want {
			if modes[entry] != mode {
				t.Errorf("%s: %s has mode %o, want %o", name, entry, modes[entry], mode)
			}
		}
	}
}

// TestFormula: release knows everything that the formula leaves open.
func TestFormula(t *testing.T) {
	formula, err := os.ReadFile("homebrew/marbles.rb")
	if err != nil {
		t.Fatal(err)
	}
	release, err := os.ReadFile("release")
	if err != nil {
		t.Fatal(err)
	}
	for _, open := range regexp.MustCompile(`@[A-Z0-9_]+@`).FindAllString(string(formula), -1) {
		known := open
		if strings.HasPrefix(open, "@SHA256_") {
			known = "@SHA256_${os^^}_${arch^^}@"
		}
		if !strings.Contains(string(release), "s|"+known+"|") {
			t.Errorf("nothing fills in %s", open)
		}
	}
}
