// Package bottest is the bench for the example bots: each is run as a process of its own between a stand-in for Telegram and
// a stand-in for a CRM, and is killed (SIGKILL) between every two steps.
//
// It owns the stand-ins, the processes and the scenarios (Suite); what a bot is built of is the bot's. A bot's test is:
//
//	func TestMain(m *testing.M) {
//		bottest.Main(m, func(ctx context.Context, c bottest.Config) error {
//			return run(ctx, config{token: c.Token, secret: c.Secret /* … */})
//		})
//	}
//
//	func TestBot(t *testing.T) { bottest.Suite(t, bottest.Bot{Poison: `"date":"x"`}) }
//
// The bot's process is the test binary itself, started again; Main sees that in its environment and calls the bot's run. The
// bot listens where it was told and tells the Bot API so (setWebhook), and the stand-in delivers there: nobody has to know a
// port beforehand, and a bot that was started again is found.
package bottest
