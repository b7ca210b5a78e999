package dedup

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/internal/backoff"
	"github.com/leadonce/leadonce/store"
)

// verdict.go: what follows from an answer, from an expired lease, from a look-up. Pure: time and policy are arguments, the
// result is a report that the store guards. Unknown is the default everywhere.

// reply is what came of one attempt.
type reply struct {
	id        string
	err       error
	abandoned bool          // the call had not returned when its time was up
	unsent    string        // why the call was not made; empty if it was
	again     time.Duration // with unsent: not before so long
	startedAt time.Time     //
	took      time.Duration //
}

// terms is the policy that verdicts follow.
type terms struct {
	claim  store.Claim // lease, quiet period, what the adapter promises now
	lo, hi time.Duration
}

func (t terms) backoff(failures int) time.Duration { return backoff.Delay(failures, t.lo, t.hi) }

// lost reports an attempt that may have been applied. now need not be the store's clock to the second: if a repeat turns out
// to be harmless no longer, the claim will not take it.
func (t terms) lost(op store.Operation, now time.Time) (store.Trigger, time.Duration) {
	if t.claim.Repeatable(op, now) {
		return store.LostRepeatable, t.backoff(op.Failures + 1)
	}
	return store.Lost, t.claim.Quiet
}

// verdict says what an attempt's reply does to op, which is sending.
func verdict(op store.Operation, r reply, t terms, now time.Time) store.Report {
	ev := crm.EvidenceOf(r.err)
	rep := store.Report{ID: op.ID, Version: op.Version, Fence: op.Fence, StartedAt: r.startedAt, Took: r.took,
		Status: ev.Status, RequestID: ev.RequestID, Returned: !r.abandoned, Reason: scrub(r.err)}
	if r.unsent == unsupported && op.Doubt { // no repeat will settle it
		rep.On, rep.RetryAfter, rep.Reason = store.Rejected, t.claim.Quiet, r.unsent
		return rep
	}
	if r.unsent != "" {
		rep.On, rep.Unsent, rep.Reason, rep.RetryAfter = store.NotApplied, true, r.unsent, r.again
		return rep
	}
	if r.err == nil && (r.id != "" || crm.Kind(op.Kind) != crm.KindCreate) && !r.abandoned {
		rep.On, rep.CRMID, rep.Version, rep.Fence = store.Confirmed, r.id, 0, 0 // evidence needs no lease
		return rep
	}
	o, after := crm.OutcomeOf(r.err)
	if r.id != "" {
		o = crm.OutcomeUnknown // an id beside an error: one of them is wrong
		rep.Reason = "the adapter returned an id and an error: " + rep.Reason
	}
	switch o {
	case crm.OutcomeNotApplied, crm.OutcomeUnavailable:
		rep.On, rep.RetryAfter = store.NotApplied, max(min(after, maxWait), t.backoff(op.Failures+1))
	case crm.OutcomeRejected:
		rep.On, rep.RetryAfter = store.Rejected, t.claim.Quiet
	default:
		rep.On, rep.RetryAfter = t.lost(op, now)
		switch {
		case r.abandoned:
			rep.Reason = fmt.Sprintf("the adapter had not returned after %v", r.took.Round(time.Millisecond))
		case r.err == nil:
			rep.Reason = "the adapter returned neither an id nor an error"
		case errors.Is(r.err, errAmbiguous):
			rep.On, rep.RetryAfter = store.Lost, t.claim.Quiet // a repeat would pick one of them
		}
	}
	return rep
}

// attention says what has to be reported about an operation that nobody is working on; ok is false if nothing. unsent means
// that the lease is this process's own, and it certainly made no call under it: the claim's answer was lost on its way here.
func attention(op store.Operation, unsent bool, t terms, now time.Time) (rep store.Report, ok bool) {
	rep = store.Report{ID: op.ID, Version: op.Version, Fence: op.Fence}
	switch {
	case op.State == store.Sending && unsent:
		rep.On, rep.Unsent, rep.Reason = store.NotApplied, true, "it was claimed, and the call was never made"
	case op.State == store.Sending:
		rep.On, rep.RetryAfter = t.lost(op, now)
		rep.Reason = "its worker never reported back: the lease of " + op.Owner + " has ended"
	case op.State == store.Uncertain && !t.claim.Unchanged(op):
		rep.On, rep.RetryAfter = store.GuaranteeChanged, t.claim.Quiet
		rep.Reason = fmt.Sprintf("it began under adapter %q with guarantee %q, which is not what is promised now", op.Adapter, op.Guarantee)
	case op.State == store.Uncertain && !t.claim.Repeatable(op, now):
		rep.On, rep.RetryAfter = store.WindowClosed, t.claim.Quiet
		rep.Reason = "the time in which a repeat was harmless is over"
	default:
		return rep, false
	}
	return rep, true
}

// lookedUp says what a look-up's answer does to op, which is in needs_reconciliation. trust is the host's consent and the
// adapter's word that an empty answer can prove something.
func lookedUp(op store.Operation, found []string, err error, trust bool, t terms, now time.Time) store.Report {
	rep := store.Report{ID: op.ID, Version: op.Version, On: store.Inconclusive, RetryAfter: nextLookup(op, t, now)}
	switch {
	case err != nil:
		rep.Reason = "look-up: " + scrub(err)
	case len(found) == 1 && found[0] != "":
		rep.On, rep.CRMID, rep.Reason = store.Confirmed, found[0], "found by look-up"
	case len(found) > 0:
		rep.Reason = fmt.Sprintf("look-up: %d records carry this operation id; a person must say which one stays", len(found))
	case absent(op, trust, t, now):
		rep.On, rep.RetryAfter, rep.Reason = store.Absent, 0, "look-up found nothing, and nothing can still arrive"
	default:
		rep.Reason = "look-up found nothing; that is no proof here (dedup.Options.TrustEmptyLookup says when it is), so a person must look"
	}
	return rep
}

// absent: an empty look-up proves absence only if no guarantee makes a repeat harmless anyway, the host and the adapter vouch
// for the look-up, every call since doubt began came back to its own worker, and none of them can still be acted on.
func absent(op store.Operation, trust bool, t terms, now time.Time) bool {
	return trust && op.Guarantee == "" && t.claim.Unchanged(op) && !op.Unreturned && now.Sub(op.UpdatedAt) >= t.claim.Quiet &&
		now.Sub(op.LastSentAt) >= t.claim.Quiet
}

// nextLookup spaces look-ups by the age of the doubt: soon at first, hourly in the end.
func nextLookup(op store.Operation, t terms, now time.Time) time.Duration {
	return min(max(now.Sub(op.LastSentAt), t.claim.Quiet), time.Hour)
}

// errAmbiguous: a look-up before a repeat found more than one record.
var errAmbiguous = errors.New("more than one record carries this operation id")

// unsupported is why an operation is not sent whose kind the adapter does not offer.
const unsupported = "unsupported"

// maxWait bounds what a CRM may ask us to wait.
const maxWait = 24 * time.Hour

// readable returns err if it can be asked for its text and its marks, else an error that can: a typed nil panics.
func readable(err error) (safe error) {
	defer func() {
		if r := recover(); r != nil {
			safe = fmt.Errorf("an error of type %T, which panics when it is read", err)
		}
	}()
	if err != nil {
		_ = err.Error()
		_, _ = crm.OutcomeOf(err)
		_ = crm.EvidenceOf(err)
		_, _ = errors.AsType[*ignored](err)
		_, _ = errors.AsType[*url.Error](err)
	}
	return err
}

// maxReason bounds a stored reason, in bytes.
const maxReason = 500

// scrub makes an error's text fit to be stored for a person: without URLs (they carry webhook secrets), without control
// characters, and short. It is not fit for a log: a CRM may quote the lead.
func scrub(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if u, ok := errors.AsType[*url.Error](err); ok {
		text = strings.ReplaceAll(text, fmt.Sprintf("%q", u.URL), "[url]")
		text = strings.ReplaceAll(text, u.URL, "[url]")
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) { // escape sequences, bidirectional overrides
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "�"))
	words := strings.Fields(text)
	for i, w := range words {
		if at := strings.Index(w, "://"); at >= 0 {
			words[i] = "[url]"
		}
	}
	text = strings.Join(words, " ")
	if len(text) > maxReason {
		cut := maxReason
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return text
}
