package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/leadonce/leadonce/telegram"
)

// webhook.go: the commands about the bot's webhook, and the token, which they and -poll need.

// botAPI is what the flags say about the Bot API server.
type botAPI struct{ base string }

func (b *botAPI) flags(f *flag.FlagSet) { f.StringVar(&b.base, "api", telegram.DefaultBaseURL, "") }

// client takes the token from the environment only, like every secret.
func (b botAPI) client(env func(string) string) (*telegram.Client, error) {
	token := strings.TrimSpace(env("BOT_TOKEN"))
	if token == "" {
		return nil, usagef("BOT_TOKEN is not set: the bot's token, as BotFather gave it")
	}
	c, err := telegram.NewClient(token, &telegram.ClientOptions{BaseURL: b.base})
	if err != nil {
		return nil, usagef("BOT_TOKEN or -api: %v", err)
	}
	return c, nil
}

// parseWebhook reads the arguments that check and set-webhook share.
func parseWebhook(args []string, env func(string) string) (w telegram.Webhook, c *telegram.Client, err error) {
	f := flag.NewFlagSet("leadbot", flag.ContinueOnError)
	var api botAPI
	api.flags(f)
	f.StringVar(&w.URL, "url", "", "")
	f.IntVar(&w.MaxConnections, "max-connections", 0, "")
	f.Func("updates", "", func(list string) error {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name == "" {
				return errors.New("write the kinds with commas between, as in message,callback_query")
			}
			w.AllowedUpdates = append(w.AllowedUpdates, name)
		}
		return nil
	})
	rest, err := parse(f, args)
	switch {
	case err != nil:
		return w, nil, err
	case len(rest) > 0:
		return w, nil, usagef("unknown argument %q", rest[0])
	}
	c, err = api.client(env)
	return w, c, err
}

func checkWebhook(ctx context.Context, args []string, env func(string) string, out io.Writer) error {
	want, c, err := parseWebhook(args, env)
	if err != nil {
		return err
	}
	r, err := c.CheckWebhook(ctx, want)
	if err != nil {
		return err
	}
	fmt.Fprint(out, r)
	if r.Problems() {
		return errors.New("enquiries do not arrive as they should: see above")
	}
	return nil
}

func setWebhook(ctx context.Context, args []string, env func(string) string, out io.Writer) error {
	w, c, err := parseWebhook(args, env)
	if err != nil {
		return err
	}
	for part := range strings.SplitSeq(env("TELEGRAM_SECRET"), ",") {
		if w.Secret = strings.TrimSpace(part); w.Secret != "" {
			break
		}
	}
	switch {
	case w.URL == "":
		return usagef("-url is missing: where Telegram shall post, https://host/telegram")
	case w.Secret == "":
		return usagef("TELEGRAM_SECRET is not set: what leadbot takes, and Telegram shall send (16 to 256 of A-Z a-z 0-9 _ -; openssl rand -hex 32 makes one)")
	}
	if err := c.SetWebhook(ctx, w); err != nil {
		return err
	}
	fmt.Fprintf(out, "Telegram posts the updates of bot %d there from now on. In a minute, leadbot check tells how it goes.\n",
		c.BotID())
	return nil
}

func deleteWebhook(ctx context.Context, args []string, env func(string) string, out io.Writer) error {
	f := flag.NewFlagSet("leadbot", flag.ContinueOnError)
	var api botAPI
	api.flags(f)
	switch rest, err := parse(f, args); {
	case err != nil:
		return err
	case len(rest) > 0:
		return usagef("unknown argument %q", rest[0])
	}
	c, err := api.client(env)
	if err != nil {
		return err
	}
	if err := c.DeleteWebhook(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "Bot %d has no webhook any more. What waits is kept, for 24 hours at most: fetch it with leadbot -poll.\n", c.BotID())
	return nil
}
