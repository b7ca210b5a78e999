package dedup_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// scenario_parse_test.go: the text form of a scenario. testdata/scenarios/README.md describes it.

// scenario is one file: a sentence, settings, what happens, and what has come of it.
type scenario struct {
	name, sentence string
	settings       map[string]string
	steps          []step
	want           map[string][]sectioned // by variant ("" is every one); one of them has to come true
}

// sectioned is what is expected, or what has come, by section.
type sectioned map[string][]string

// step is one line of what happens: a wait, a delivery, or what somebody does.
type step struct {
	line   int
	text   string
	wait   time.Duration // a line of its own: the end of a burst
	pause  time.Duration // before a delivery
	then   bool          // not before what stands above it, in whatever order the rest comes
	who    string        // of a delivery: before the colon
	words  []string
	quoted []bool
}

func (s step) delivery() bool { return s.who != "" }

var (
	sections = []string{"leads", "contacts", "deals", "operations", "events"}
	variants = []string{"shuffled", "crashed", "twice"}
	isPause  = regexp.MustCompile(`^\+(\S+)\s+(.*)$`)
	isWho    = regexp.MustCompile(`^([^":]+):\s+(.*)$`)
)

// parseScenario reads a file, and says in which line it can't.
func parseScenario(name, text string) (*scenario, error) {
	sc := &scenario{name: name, settings: map[string]string{}, want: map[string][]sectioned{"": {{}}}}
	section, expecting, now := "", false, sc.want[""][0]
	for i, raw := range strings.Split(text, "\n") {
		line := strings.TrimSpace(raw)
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		if sc.sentence == "" {
			sc.sentence = line
			continue
		}
		head, rest, colon := strings.Cut(line, ":")
		rest = strings.TrimSpace(rest)
		indented := strings.HasPrefix(raw, " ") || strings.HasPrefix(raw, "\t")
		switch {
		case !indented && colon && rest == "" && slices.Contains(variants, head):
			section, expecting, now = "", true, sectioned{}
			sc.want[head] = append(sc.want[head], now)
		case !indented && colon && slices.Contains(sections, head):
			section, expecting = head, true
			now[section] = nil
			if rest != "" && rest != "none" {
				now[section] = splitList(rest)
			}
		case expecting:
			if !indented || section == "" {
				return nil, fmt.Errorf("line %d: %q stands among what is expected, and in no section", i+1, line)
			}
			if strings.HasPrefix(raw, "    ") {
				line = "  " + line
			}
			now[section] = append(now[section], line)
		case !indented && colon && slices.Contains([]string{"rule", "crm", "option", "files", "shadow", "slow"}, head):
			sc.settings[head] = rest
		default:
			st, err := parseStep(i+1, line)
			if err != nil {
				return nil, err
			}
			sc.steps = append(sc.steps, st)
		}
	}
	if !expecting || sc.settings["rule"] == "" {
		return nil, fmt.Errorf("it needs a rule, and something that is expected")
	}
	return sc, nil
}

// splitList reads "2 planned, 1 ignored: why" as two lines.
func splitList(s string) (list []string) {
	for part := range strings.SplitSeq(s, ", ") {
		list = append(list, strings.TrimSpace(part))
	}
	return list
}

func parseStep(n int, line string) (st step, err error) {
	st = step{line: n, text: line}
	if d, ok := strings.CutPrefix(line, "wait "); ok {
		st.wait, err = time.ParseDuration(d)
		return st, err
	}
	if m := isPause.FindStringSubmatch(line); m != nil {
		if st.pause, err = time.ParseDuration(m[1]); err != nil {
			return st, fmt.Errorf("line %d: %w", n, err)
		}
		line = m[2]
	}
	if rest, ok := strings.CutPrefix(line, "then "); ok {
		st.then, line = true, strings.TrimSpace(rest)
	}
	if m := isWho.FindStringSubmatch(line); m != nil {
		st.who, line = m[1], m[2]
	}
	st.words, st.quoted, err = splitWords(line)
	if err != nil {
		return st, fmt.Errorf("line %d: %w", n, err)
	}
	return st, nil
}

// splitWords takes a line apart at its spaces; what is quoted is one word.
func splitWords(line string) (words []string, quoted []bool, err error) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		if line[0] != '"' {
			w, rest, _ := strings.Cut(line, " ")
			words, quoted, line = append(words, w), append(quoted, false), rest
			continue
		}
		w, rest, ok := strings.Cut(line[1:], `"`)
		if !ok {
			return nil, nil, fmt.Errorf("a quote is not closed: %s", line)
		}
		words, quoted, line = append(words, w), append(quoted, true), rest
	}
	return words, quoted, nil
}

// reader takes a step's words one after another.
type reader struct {
	step
	at int
}

func (r *reader) take(words ...string) bool {
	if len(r.words)-r.at < len(words) {
		return false
	}
	for i, w := range words {
		if r.words[r.at+i] != w || r.quoted[r.at+i] {
			return false
		}
	}
	r.at += len(words)
	return true
}

func (r *reader) word() string {
	if r.at >= len(r.words) {
		return ""
	}
	r.at++
	return r.words[r.at-1]
}

// text takes a quoted word, if that is next.
func (r *reader) quote() string {
	if r.at < len(r.words) && r.quoted[r.at] {
		return r.word()
	}
	return ""
}

func (r *reader) done() bool { return r.at == len(r.words) }

// bursts are the deliveries that may come in any order among themselves: what stands between two lines that are none, or
// that are marked "then".
func (sc *scenario) bursts() (spans [][2]int) {
	from := -1
	end := func(to int) {
		if from >= 0 && to-from > 1 {
			spans = append(spans, [2]int{from, to})
		}
		from = -1
	}
	for i, st := range sc.steps {
		if !st.delivery() || st.then {
			end(i)
		}
		if st.delivery() && from < 0 {
			from = i
		}
	}
	end(len(sc.steps))
	return spans
}

// expected is what a variant of the run may end with: its own, else that of every variant. A crash may also change nothing.
func (sc *scenario) expected(variant string) []sectioned {
	own := sc.want[variant]
	if len(own) == 0 || variant == "crashed" {
		own = append(own[:len(own):len(own)], sc.want[""]...)
	}
	return own
}

func TestScenariosAreReadStrictly(t *testing.T) {
	for name, text := range map[string]string{
		"nothing is expected":       "It works.\nrule: one per message\nanna: message 1 \"x\"\n",
		"no rule":                   "It works.\nanna: message 1 \"x\"\nleads: none\n",
		"an open quote":             "It works.\nrule: one per message\nanna: message 1 \"x\nleads: none\n",
		"a wait that is no time":    "It works.\nrule: one per message\nwait soon\nleads: none\n",
		"a step after the end":      "It works.\nrule: one per message\nleads: none\nanna: message 1 \"x\"\n",
		"a variant without section": "It works.\nrule: one per message\nleads: none\nshuffled:\n  x\n",
	} {
		if _, err := parseScenario("x", text); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
	sc, err := parseScenario("x", "It works.\nrule: one per message\nanna: message 1 \"a b\"\n+1s  bob: message 2\nwait 3s\nleads: 1\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(sc.steps) != 3 || sc.steps[1].pause != time.Second || sc.steps[0].words[2] != "a b" || len(sc.bursts()) != 1 {
		t.Errorf("%+v", sc)
	}
}
