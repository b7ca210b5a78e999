// Package telegram is the dedup.Source of the Telegram Bot API: it tells a genuine webhook request from a forged one, and
// says of an update what it is about: who asks, what it is the content of, and with which other updates it has to stay in
// order.
//
// It also fetches updates: Transport stands under the library of a bot that polls, Poller is for a bot without one. And
// it sets and checks the webhook (Client).
//
// It owns neither the HTTP answer (dedup.Middleware does) nor the bot: it writes nobody and downloads nothing, and for a
// webhook it needs no token. In front of an existing bot it is two lines:
//
//	func main() {
//		bot, err := tgbotapi.NewBotAPI(os.Getenv("BOT_TOKEN"))
//		// ... the store st ...
//		src, err := telegram.NewSource(bot.Self.ID, os.Getenv("TELEGRAM_SECRET"), nil)
//		if err != nil {
//			log.Fatal(err)
//		}
//		http.Handle("/telegram", dedup.Middleware(st, src, nil)(existingHandler))
//		log.Fatal(http.ListenAndServe(":8443", nil))
//	}
//
// Many bots, or bots that come and go, share one handler: dedup.MiddlewareFor, see the example of NewSource.
//
// # What Telegram promises, and what is made of it
//
// [D] is the documentation at https://core.telegram.org/bots/api, [S] the public server at
// https://github.com/tdlib/telegram-bot-api; Telegram's cloud may differ from [S].
//
//   - The secret is 1 to 256 characters A-Z, a-z, 0-9, _ and -, and comes in the header X-Telegram-Bot-Api-Secret-Token
//     with every request if it was given to setWebhook [D, setWebhook]. NewSource refuses to start without one, and takes
//     none of fewer than MinSecret characters. Several may be given, so that a rotation loses nothing: accept old and new,
//     call setWebhook with the new one, drop the old one.
//   - update_id is unique for a bot and counts up, but after a week without updates the next one is random [D, Update], and
//     the ids of the cloud and of a local server have nothing to do with each other [S]. So an id is never compared with
//     another one. The same id with the same bytes or the same fingerprint is a repeat; with both different it is a new event.
//   - A repeat is the stored JSON, byte for byte [S]. The fingerprint, of the content in one canonical
//     form, is for the proxy that writes JSON anew.
//   - An update is kept for 24 hours [D, getting updates]; the press of a button and the queries of a payment for 150
//     seconds [S]. What is not accepted by then is lost before it gets here.
//   - Ids have up to 52 significant bits [D, User and Chat]: they are int64 here and decimal strings in an Enquiry.
//   - New kinds and new fields appear at any time. A kind that is not known is an ordinary event without a person; a field
//     of a wrong type counts as missing and costs no other field.
//
// # Long polling
//
// An offset given to getUpdates confirms every lower update_id [D, getUpdates], and bot libraries move theirs on before
// the bot has handled anything. So what getUpdates answers is stored before anybody sees it. Three more things lose updates,
// and are kept from Telegram: a negative offset, which forgets what was not fetched [D, getUpdates; S, TQueue::clear];
// drop_pending_updates; and an offset from before the ids started anew, which [S] answers from the head of the queue without
// confirming anything (TQueue::get: more than 10 beyond the newest id), and the cloud nobody knows how. getUpdates and a
// webhook exclude each other: 409 [D, getUpdates].
//
// # Why nothing arrives
//
// Telegram tells it in getWebhookInfo, in few words: another program has taken the webhook, a proxy answers 404, a
// certificate's chain is incomplete. Client.CheckWebhook says it in more, with what to do. The words of a failure are [S]'s.
//
// # Who asks
//
// A person is a user who is not a bot (from.is_bot) and not one of Telegram's stand-ins: GroupAnonymousBot (1087968824),
// Channel_Bot (136817688), and 777000, which forwards a channel's posts into its group. Somebody who writes in the name of a
// chat of their own is that chat (a negative id): it can be answered. A chat that speaks in itself (an anonymous
// administrator, a post of the channel, its copy in the linked group) is nobody who asks.
//
// In a business chat the client's messages and the owner's both arrive. The chat's id is the client's, so a business message
// asks only if from.id equals chat.id; the owner's reply is kept, in order with the client's messages, without a person.
// A message that was sent with the help of an inline bot (via_bot) is its sender's.
//
// # What is the same enquiry
//
// The content identity of a message is its bot, chat and message_id (and business connection); of an edit the same, with
// another revision; of a button press, a query or a guest message Telegram's id of it. Telegram may deliver one impatient
// person's presses as several callback queries with ids of their own: each is a content of its own here, and they share a
// repeat key (bot, person, message, button). Where Telegram gives no id the whole content, without the update_id, is its
// identity. An album is one deal key: bot, chat, media_group_id. A group that becomes a supergroup gets another id; each
// of the two service messages names the ordering key of the other chat (Enquiry.MovedTo, MovedFrom).
//
// Neither a location nor a file ever becomes a URL: a file URL of Telegram contains the bot's token.
package telegram
