package telegram

import (
	"errors"
	"strconv"
	"strings"
)

// token.go: what a bot's token says about it, and the Source of a bot that fetches its updates.

const tokenLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// BotID returns the numeric id of the bot that a token belongs to: the number before the colon. It asks nobody, so that a
// revoked token gives an id like any other. The error never contains the token.
func BotID(token string) (int64, error) {
	id, rest, _ := strings.Cut(token, ":")
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n <= 0 || id[0] == '+' || rest == "" {
		return 0, errors.New("telegram: not a bot's token: BotFather's have a number, a colon and letters, " +
			"without spaces or quotation marks around them")
	}
	if strings.Trim(rest, tokenLetters) != "" {
		return 0, errors.New("telegram: not a bot's token: after the colon there is something else than A-Z, a-z, 0-9, _ and -")
	}
	return n, nil
}

// NewPollingSource returns the source of a bot that fetches its updates (Transport, Poller). There is no secret, so it
// authenticates nothing: behind a dedup.Middleware every request is refused. Its events are those of NewSource for the same
// bot and tenant, so that a bot which changes from one to the other finds what was delivered both ways a duplicate.
func NewPollingSource(botID int64, o *Options) (*Source, error) {
	if o == nil {
		o = &Options{}
	}
	return newSource(botID, o)
}
