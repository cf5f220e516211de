package state

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

func TestStampJSON(t *testing.T) {
	at := time.Date(2026, 11, 30, 17, 0, 0, 0, time.UTC)
	tests := []struct {
		name, text string
		want       time.Time
		written    string // where it differs from text
	}{
		{name: "ours", text: `"2026-11-30T17:00:00.000Z"`, want: at},
		{name: "milliseconds", text: `"2026-11-30T17:00:00.125Z"`, want: at.Add(125 * time.Millisecond)},
		{name: "zone", text: `"2026-11-30T18:00:00+01:00"`, want: at, written: `"2026-11-30T17:00:00.000Z"`},
		{name: "escape", text: `"2026\u002d11-30T17:00:00.000Z"`, want: at, written: `"2026-11-30T17:00:00.000Z"`},
		{name: "null", text: `null`},
		{name: "empty", text: `""`, written: `null`},
		{name: "no date", text: `"yesterday"`, written: `null`},
		{name: "impossible date", text: `"2026-02-30T00:00:00.000Z"`, written: `null`},
		{name: "number", text: `1796058000000`, written: `null`},
		{name: "object", text: `{"a":[1]}`, written: `null`},
		{name: "lone surrogate", text: `"\ud800"`, written: `null`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Stamp{Time: at.Add(time.Hour)}
			noError(t, decode([]byte(tt.text), &got))
			if !got.Equal(tt.want) || got.IsZero() != tt.want.IsZero() {
				t.Errorf("read %v, want %v", got, tt.want)
			}
			written, err := json.Marshal(got)
			noError(t, err)
			want := tt.written
			if want == "" {
				want = tt.text
			}
			if string(written) != want {
				t.Errorf("wrote %s, want %s", written, want)
			}
		})
	}
}

func TestStampWrites(t *testing.T) {
	berlin := time.FixedZone("CET", 3600)
	tests := []struct {
		at   time.Time
		want string
	}{
		{time.Date(2026, 11, 30, 18, 0, 0, 1_999_999, berlin), `"2026-11-30T17:00:00.001Z"`},
		{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), `null`},
		{time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), `null`},
	}
	for _, tt := range tests {
		got, err := json.Marshal(Stamp{tt.at})
		noError(t, err)
		if string(got) != tt.want {
			t.Errorf("%v: got %s, want %s", tt.at, got, tt.want)
		}
	}
	omitted, err := json.Marshal(SlotEntry{})
	noError(t, err)
	if want := `{"slot":null,"at":null,"outcome":""}`; string(omitted) != want {
		t.Errorf("zero stamps: got %s, want %s", omitted, want)
	}
}

func TestMillisJSON(t *testing.T) {
	tests := []struct {
		text string
		want Millis
		bad  bool
	}{
		{text: `null`},
		{text: `0`},
		{text: `1796058000000`, want: 1796058000000},
		{text: `1.7e12`, want: 1700000000000},
		{text: `1700000000000.75`, want: 1700000000000},
		{text: `-5`, want: -5},
		{text: `8640000000000000`, want: 8640000000000000},
		{text: `8640000000000001`, bad: true},
		{text: `1e400`, bad: true},
		{text: `9223372036854775807`, bad: true},
		{text: `"1796058000000"`, bad: true},
		{text: `{}`, bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			got := Millis(7)
			err := decode([]byte(tt.text), &got)
			if (err != nil) != tt.bad {
				t.Fatal(err)
			}
			if !tt.bad && got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	got, err := json.Marshal([]Millis{0, 12})
	noError(t, err)
	if string(got) != `[null,12]` {
		t.Errorf("wrote %s", got)
	}
}

func TestMillisTime(t *testing.T) {
	at := time.Date(2026, 11, 30, 17, 0, 0, 125e6, time.UTC)
	if diff := cmp.Diff(at, ToMillis(at.Add(999)).Time()); diff != "" {
		t.Error(diff)
	}
	if !Millis(0).Time().IsZero() || ToMillis(time.Time{}) != 0 {
		t.Error("zero is not kept")
	}
}
