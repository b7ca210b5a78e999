package main

import (
	"strings"
	"testing"
)

// shadow_test.go: a pilot beside what somebody has: all is decided, nothing is sent.

func TestShadow(t *testing.T) {
	crm, dir := newCRM(t), t.TempDir()
	s := launch(t, dir, crm.hook(), nil, []string{"-shadow"}, nil)
	s.accept(update(1, 42, "How much is an oil change?"))
	report := func() []shadowView { return read[[]shadowView](t, s.ops("shadow", "-json")) }
	eventually(t, "the lead is decided", func() bool { return len(report()) == 1 && report()[0].State == "done" })

	t.Run("the log says with its first line that nothing is sent", func(t *testing.T) {
		for line := range strings.Lines(s.logged()) {
			if strings.Contains(line, "msg=listening") {
				if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "NOTHING IS SENT TO THE CRM") {
					t.Error(line)
				}
			}
		}
	})
	t.Run("the CRM was not called", func(t *testing.T) {
		if len(crm.came) != 0 {
			t.Errorf("%d calls", len(crm.came))
		}
	})
	t.Run("the report is a table of what would have been sent", func(t *testing.T) {
		out := s.ops("shadow")
		for _, want := range []string{"AGE ", "KIND", "LEAD", "WHAT", "lead.create", "acme", "Telegram: Anna",
			"1 would have been sent"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing:\n%s", want, out)
			}
		}
		got := report()[0]
		if got.Kind != "lead.create" || got.Tenant != "acme" || got.Summary != "Telegram: Anna" || got.OperationID == "" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("since leaves out what is older", func(t *testing.T) {
		if out := s.ops("shadow", "-since", "1ns", "-json"); strings.TrimSpace(out) != "[]" {
			t.Error(out)
		}
		if out := s.ops("shadow", "-since", "1h"); !strings.Contains(out, "1 would have been sent") {
			t.Error(out)
		}
	})
	t.Run("without the flag a leadbot sends what comes then, and nothing of the shadow", func(t *testing.T) {
		s.cmd.Process.Kill()
		within(t, "it has ended", s.exited)
		s = launch(t, dir, crm.hook(), nil, nil, nil)
		if strings.Contains(s.logged(), "NOTHING IS SENT") {
			t.Error(s.logged())
		}
		s.accept(update(2, 43, "And tyres?"))
		within(t, "the call has arrived", crm.came)
		eventually(t, "it is done", func() bool { return len(s.in("done")) == 2 })
		if len(crm.came) != 0 || len(report()) != 1 {
			t.Errorf("%d more calls, %d entries", len(crm.came), len(report()))
		}
	})
}
