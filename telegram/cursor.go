package telegram

import (
	"slices"
	"time"
)

// cursor.go: which offset Telegram is asked with, so that nothing that is not stored is ever confirmed.

// cursor remembers what the last answers of getUpdates were. An offset confirms every lower update_id [D, getUpdates], and the
// ids may start again anywhere, also lower, after a week without updates [D, Update]. A bot that goes on asking from "the
// highest id seen + 1" then asks for the future: the server of [S] answers such an offset (more than 10 beyond its newest id)
// from the head of the queue and confirms nothing, so that after 100 updates nothing new ever comes; what the cloud does with
// it is not documented, and it may count what it skipped as confirmed.
//
// It also notices a bot that can't take what it is given: a library that decodes a batch whole asks from the same offset again,
// for a day, and whoever writes meanwhile is not even fetched.
type cursor struct {
	at    time.Time // of the last answer, by the wall clock: a machine may have been suspended
	known bool      // last is the last update of the last answer that had any
	last  int64     //
	empty []int64   // what was answered with nothing since: one for each loop of the bot that polls

	// times is how often in a row a bot that asked from asked was given updates that begin with first, and alone how often only
	// that one. careful is the last update of a batch that was given in vain: up to there they are given one by one.
	times, alone int
	asked, first int64
	careful      int64
}

// maxLoops bounds cursor.empty.
const maxLoops = 8

// stale is how long after an answer an offset still means something. Telegram keeps an update for 24 hours [D, getting
// updates]: after two days without an answer nothing waits of what was handed out, and the ids may have started anew.
const stale = 48 * time.Hour

const (
	// tryBatch is how often a bot that asks for the same batch again is given it, tryAlone how often each of its updates by
	// itself. What a bot was given and does not take is not the network's fault: it comes from memory.
	tryBatch = 3
	tryAlone = 2
)

// stuck reports whether the bot that asks from offset can't take the update that it was given: it is left out.
func (c cursor) stuck(offset int64) bool { return c.alone >= tryAlone && offset == c.asked }

// ask returns what offset to send in place of the bot's own; 0 means none, which is "from the head, confirming nothing". one
// asks for a single update.
//
// Beyond what was handed out there is nothing that the bot can know of: it is asked for what follows that, all of which is
// stored. And once an offset was answered with nothing, all that is below is confirmed; from then on no offset means
// the same, and confirms nothing by mistake should the next id be lower.
func (c cursor) ask(offset int64, now time.Time) (send int64, one bool) {
	one = c.careful != 0
	switch {
	case slices.Contains(c.empty, offset), c.known && now.Sub(c.at) > stale:
		return 0, one
	case c.known && offset > c.last+1:
		return c.last + 1, one
	case c.stuck(offset):
		return c.first + 1, one
	}
	return offset, one
}

// answered returns the cursor after an answer of n updates that is stored. first and last are the ids of the outer ones; they
// count only if numbered, for what the library makes of an update without one nobody knows.
func (c cursor) answered(offset int64, n int, first, last int64, numbered bool, now time.Time) cursor {
	switch {
	case n == 0:
		next := cursor{at: now, known: c.known, last: c.last, empty: c.empty}
		if !slices.Contains(c.empty, offset) {
			next.empty = append(slices.Clone(c.empty[max(0, len(c.empty)+1-maxLoops):]), offset)
		}
		return next
	case !numbered:
		return cursor{at: now, last: last}
	}
	next := cursor{at: now, known: true, last: last, times: 1, asked: offset, first: first}
	again := c.times > 0 && c.asked == offset && c.first == first
	if again {
		next.times = c.times + 1
	}
	switch {
	case c.careful == 0 && next.times >= tryBatch:
		next.careful = last
	case c.careful != 0 && first <= c.careful:
		next.careful = c.careful
	}
	if c.careful != 0 && n == 1 {
		next.alone = 1
		if again {
			next.alone = c.alone + 1
		}
	}
	return next
}
