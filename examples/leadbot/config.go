package main

import (
	"flag"
	"log/slog"
	"strings"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/bitrix24"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/crm/jsonhook"
	"github.com/leadonce/leadonce/dedup/stagehook"
	"github.com/leadonce/leadonce/telegram"
)

// config.go: from flags and environment to a source and a CRM. The database is in database.go.

type config struct {
	listen string
	db     place
	crm    string
	source *telegram.Source
	client *telegram.Client  // nil: updates come by webhook
	hooks  *stagehook.Source // nil: the CRM sends none

	addAccount bool
	shadow     bool

	b24Webhook string
	hookSecret string
}

// parseConfig refuses what can't work before anything is opened. The secrets come from the environment only: a command line
// can be read by every user of the machine.
func parseConfig(args []string, env func(string) string) (config, error) {
	c := config{b24Webhook: env("B24_WEBHOOK"), hookSecret: env("HOOK_SECRET")}
	f := flag.NewFlagSet("leadbot", flag.ContinueOnError)
	f.StringVar(&c.listen, "listen", "127.0.0.1:8080", "")
	c.db.flags(f)
	f.StringVar(&c.crm, "crm", "", "")
	tenant := f.String("tenant", "", "")
	f.BoolVar(&c.addAccount, "add-account", false, "")
	f.BoolVar(&c.shadow, "shadow", false, "")
	botID := f.Int64("bot-id", 0, "")
	poll := f.Bool("poll", false, "")
	var api botAPI
	api.flags(f)
	rest, err := parse(f, args)
	switch {
	case err != nil:
		return c, err
	case len(rest) > 0:
		return c, usagef("unknown command %q", rest[0])
	case c.crm == "":
		return c, usagef("-crm is missing: sim, jsonhook:URL or bitrix24")
	case c.db.check() != nil:
		return c, c.db.check()
	}
	if *poll {
		err = c.poll(api, *botID, *tenant, env)
	} else {
		err = c.webhook(*botID, *tenant, env("TELEGRAM_SECRET"))
	}
	if err != nil {
		return c, err
	}
	if tokens := env("CRM_HOOK_TOKEN"); tokens != "" {
		if c.hooks, err = newHooks(c.crm, tokens, *tenant); err != nil {
			return c, usagef("CRM_HOOK_TOKEN: %v", err)
		}
	}
	return c, nil
}

// webhook is for updates that Telegram posts.
func (c *config) webhook(botID int64, tenant, secrets string) (err error) {
	switch {
	case botID == 0:
		return usagef("-bot-id is missing: the number before the colon of the bot's token")
	case strings.Trim(secrets, ", ") == "":
		return usagef("TELEGRAM_SECRET is not set, and without it anybody could send updates: " +
			"set it to the secret_token that setWebhook was given (16 to 256 of A-Z a-z 0-9 _ -; openssl rand -hex 32 makes one)")
	}
	if c.source, err = telegram.NewSource(botID, secrets, &telegram.Options{Tenant: tenant}); err != nil {
		return usagef("-bot-id or TELEGRAM_SECRET: %v", err)
	}
	return nil
}

// poll is for updates that are fetched: the bot's id is in its token.
func (c *config) poll(api botAPI, botID int64, tenant string, env func(string) string) (err error) {
	if c.client, err = api.client(env); err != nil {
		return err
	}
	if botID != 0 && botID != c.client.BotID() {
		return usagef("-bot-id is %d, and BOT_TOKEN is of bot %d: with -poll leave -bot-id out", botID, c.client.BotID())
	}
	if c.source, err = telegram.NewPollingSource(c.client.BotID(), &telegram.Options{Tenant: tenant}); err != nil {
		return usagef("BOT_TOKEN: %v", err)
	}
	return nil
}

// b24Entity is what an enquiry becomes in Bitrix24, and what hooks are listened to about.
const b24Entity = bitrix24.Lead

// newHooks returns the source of what the CRM tells about its leads. Bitrix24 puts the token into its form; whoever else
// calls signs the body as jsonhook does.
func newHooks(crm, tokens, tenant string) (*stagehook.Source, error) {
	name, _, _ := strings.Cut(crm, ":")
	secrets := strings.Split(tokens, ",")
	for i := range secrets {
		secrets[i] = strings.TrimSpace(secrets[i])
	}
	auth := stagehook.HMAC(stagehook.Signature{Header: jsonhook.SignatureHeader, Prefix: "v1="}, secrets...)
	parse := stagehook.ParseFunc(stagehook.JSON)
	if name == "bitrix24" {
		auth = stagehook.Token(stagehook.InForm, "auth[application_token]", secrets...)
		parse = stagehook.Bitrix24Form(int(b24Entity))
	}
	return stagehook.New(name, auth, parse, &stagehook.Options{Tenant: tenant})
}

// openCRM returns the adapter, and the simulator if it is that.
func openCRM(c config, log *slog.Logger) (crm.Adapter, *crmtest.Simulator, error) {
	url, hook := strings.CutPrefix(c.crm, "jsonhook:")
	switch {
	case c.crm == "sim":
		sim := crmtest.NewSimulator(crmtest.Config{})
		return sim.Local(), sim, nil
	case hook:
		a, err := jsonhook.New(url, &jsonhook.Options{Secret: c.hookSecret})
		if err != nil {
			return nil, nil, usagef("-crm or HOOK_SECRET: %v", err)
		}
		return a, nil, nil
	case c.crm == "bitrix24" && c.b24Webhook == "":
		return nil, nil, usagef("B24_WEBHOOK is not set: the URL of an incoming webhook with the scope crm, " +
			"https://portal/rest/1/code/")
	case c.crm == "bitrix24":
		a, err := bitrix24.New(c.b24Webhook, &bitrix24.Options{Entity: b24Entity, Logger: log})
		if err != nil {
			return nil, nil, usagef("B24_WEBHOOK: %v", err)
		}
		return a, nil, nil
	}
	return nil, nil, usagef("-crm: must be sim, jsonhook:URL or bitrix24")
}
