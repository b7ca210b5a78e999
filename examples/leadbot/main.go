// Command leadbot is a bot server to start from: it takes Telegram's updates, makes a lead of each enquiry, and settles from
// the command line what could not be known. Copy the folder, change rule.go, and it is yours.
//
// Try it against a simulated CRM, without an account anywhere:
//
//	export TELEGRAM_SECRET=a-long-random-string
//	go run ./examples/leadbot -crm sim -bot-id 123456
//
// and in another terminal, as often as you like, what Telegram would send:
//
//	curl -i http://127.0.0.1:8080/telegram \
//	  -H "X-Telegram-Bot-Api-Secret-Token: a-long-random-string" -H "Content-Type: application/json" \
//	  -d '{"update_id":1,"message":{"message_id":1,"date":1767225600,"text":"How much is an oil change?",
//	       "chat":{"id":42,"type":"private"},"from":{"id":42,"is_bot":false,"first_name":"Anna"}}}'
//	curl http://127.0.0.1:8080/sim/leads
//
// There is one lead, however often the first line runs. The simulated CRM lives in memory and forgets its leads with the
// process; leads.db remembers what was done.
//
// Where one machine is not enough, -db postgres://USER@HOST/DATABASE in place of the file is all that changes: start as many
// as you like, behind one URL. The password belongs into PGPASSWORD or a pgpass file, not on the command line, which every
// user of the machine can read; leadbot prints it nowhere.
//
// For a real bot put it behind a TLS proxy that passes on /telegram only (and /crm, for the CRM's hooks), and tell Telegram:
// "leadbot set-webhook -url https://host/telegram", with the bot's token in BOT_TOKEN and the same secret. "leadbot check"
// says how deliveries go, and what to do if they do not. Where nothing can be reached from outside, -poll fetches the updates
// instead, with BOT_TOKEN and without a secret. Then -crm jsonhook:URL or -crm bitrix24. On SIGTERM it takes nothing new,
// finishes the calls that are under way, and exits 0. "leadbot help" lists the flags and the ops commands.
//
// Beside what you have, let it run with -shadow first: it decides and records everything and sends nothing, and "leadbot ops
// shadow" lists what it would have sent.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// main.go: which command, and what its error means for the exit code.

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a command that can't be meant.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, env func(string) string, out, errOut io.Writer) int {
	err := dispatch(ctx, args, env, out, errOut)
	_, misused := errors.AsType[*usageError](err)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, help)
		return exitOK
	case misused:
		fmt.Fprintf(errOut, "leadbot: %s\n(leadbot help lists commands and flags)\n", printable(err.Error()))
		return exitUsage
	}
	fmt.Fprintf(errOut, "leadbot: %s\n", printable(err.Error()))
	return exitFailed
}

func dispatch(ctx context.Context, args []string, env func(string) string, out, errOut io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "help":
			return flag.ErrHelp
		case "ops":
			return ops(ctx, args[1:], out)
		case "check":
			return checkWebhook(ctx, args[1:], env, out)
		case "set-webhook":
			return setWebhook(ctx, args[1:], env, out)
		case "delete-webhook":
			return deleteWebhook(ctx, args[1:], env, out)
		}
	}
	c, err := parseConfig(args, env)
	if err != nil {
		return err
	}
	return serve(ctx, c, errOut)
}

// parse reads flags wherever they stand among the other arguments, and returns those.
func parse(fs *flag.FlagSet, args []string) (rest []string, err error) {
	fs.SetOutput(io.Discard)
	for {
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, err
		} else if err != nil {
			return nil, usagef("%v", err)
		}
		if fs.NArg() == 0 {
			return rest, nil
		}
		rest, args = append(rest, fs.Arg(0)), fs.Args()[1:]
	}
}

const help = `leadbot: Telegram enquiries become leads, each exactly once.

  leadbot -crm sim|jsonhook:URL|bitrix24 -bot-id N [flags]       updates come by webhook
  leadbot -crm sim|jsonhook:URL|bitrix24 -poll [flags]           updates are fetched

    -listen ADDR    where to listen (default 127.0.0.1:8080)
    -db DATABASE    leads.db (the default) or another SQLite file, made if there is none;
                    postgres://USER@HOST/DATABASE: PostgreSQL, where any number of leadbots share the work. Give it the
                    password in PGPASSWORD or a pgpass file, and ?sslmode=disable if the server has no TLS
    -schema NAME    PostgreSQL only: the schema of the tables, made if there is none (default leadonce)
    -pooler         PostgreSQL only: HOST is a pooler in transaction mode (pgbouncer)
    -crm CRM        sim: a simulated CRM in memory, its leads under /sim/leads
                    jsonhook:URL: POST each lead as JSON to URL
                    bitrix24: the incoming webhook in B24_WEBHOOK
    -bot-id N       the number before the colon of the bot's token
    -poll           fetch updates with BOT_TOKEN (getUpdates): neither -bot-id nor TELEGRAM_SECRET nor a URL is needed. It gets
                    nothing while a webhook is set: delete-webhook
    -api URL        the Bot API server, if it is your own (default https://api.telegram.org)
    -tenant NAME    your own name for the account, if one database serves several
    -add-account    the bot or the tenant is a further or a new one: leads.db remembers whose updates it holds, and leadbot
                    does not start with others
    -shadow         decide and record everything and send nothing to the CRM: see ops shadow

  Environment
    TELEGRAM_SECRET   the secret_token given to setWebhook, 16 characters or more (openssl rand -hex 32 makes one);
                      several, comma-separated, while it is replaced (required, but for -poll)
    BOT_TOKEN         the bot's token: for -poll, check, set-webhook and delete-webhook
    B24_WEBHOOK       for -crm bitrix24: https://portal/rest/1/code/
    HOOK_SECRET       for -crm jsonhook: signs the requests (optional)
    CRM_HOOK_TOKEN    opens /crm for hooks about the CRM's leads, so that a won or lost one is not continued (optional;
                      several, comma-separated, while it is replaced). bitrix24: the token of an outgoing webhook for the event
                      ONCRMLEADUPDATE; else the key of the header Leadonce-Signature: v1=HMAC-SHA256 of the body in hex,
                      and the body is JSON: {"lead_id": "77", "stage": "won", "version": 3, "closed": true}
    PGPASSWORD        for -db postgres://...; the other variables of libpq (PGSSLROOTCERT, ...) hold as well

  Paths
    POST /telegram    Telegram's updates     GET /healthz   the process is alive
    GET  /stats       what stands where      GET /readyz    the database can be used
    POST /crm         the CRM's hooks, where CRM_HOOK_TOKEN is set

  leadbot check [-url URL] [-updates KIND,...] [-api URL]
    what Telegram says about the bot's webhook, in plain words, and what to do; exit code 1 if enquiries do not arrive.
    -url: where it should lead to; -updates: the kinds of updates that should come. It changes nothing.
  leadbot set-webhook -url https://HOST/telegram [-updates KIND,...] [-max-connections N] [-api URL]
    have Telegram post there, with the (first) secret of TELEGRAM_SECRET. It asks for every kind of update but chat_member,
    message_reaction and message_reaction_count, or with -updates message,callback_query for those alone.
    What waits is kept. It takes the webhook from whoever has it.
  leadbot delete-webhook [-api URL]
    have Telegram post nowhere, so that -poll gets the updates. What waits is kept.

  leadbot ops COMMAND [-db DATABASE] ...    beside a running leadbot, or without one; it makes no database

    list                     what is unfinished: a table. -state all|STATE,... -kind -tenant -crm-id -older 1h -limit N
                             -json; -events: parked and quarantined events instead
    show ID [-fields]        one operation, its updates and its history; -fields: also what is sent to the CRM. -json
    shadow                   what -shadow would have sent, with titles and texts: a table. -since 24h -json
    found ID=CRM_ID ...      the lead is in the CRM, under this id
    absent ID ... [-force]   I looked: it is not in the CRM; send it again. Refused (and with -all left out) for 2 minutes
                             after the request, since the CRM may act late; -force: I know that it does not
    cancel ID ...            send nothing more
    reopen ID ...            try a failed or canceled operation again
    correct ID=CRM_ID ...    the stored CRM id was mistyped
    acknowledge ID ...       a conflict of two CRM ids has been seen to
    retry EVENT ...          plan parked events again
    restored                 the database came back from a backup: before leadbot runs on it, mark what may have been sent

    All but list, show and shadow need -by WHO and -why WHY. ID@VERSION acts only if the operation is still at that version.
    absent, cancel, reopen, acknowledge and retry take, instead of ids, -all with the filters of list; -all and restored
    say what they would do and do it only with -yes.

  Exit codes: 0 done, 1 failed (or some were refused), 2 the command makes no sense.
`
