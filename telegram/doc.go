// Package telegram is the dedup.Source of the Telegram Bot API: it tells a genuine webhook request from a forged one, and
// says of an update what it is about: who asks, what it is the content of, and with which other updates it has to stay in
// order.
//
// It owns neither the HTTP answer (dedup.Middleware does) nor the bot (it sends nothing, downloads nothing and needs no
// token). In front of an existing bot it is two lines:
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
// # What Telegram promises, and what is made of it
//
// [D] is the documentation at https://core.telegram.org/bots/api, [S] the public server at
// https://github.com/tdlib/telegram-bot-api; Telegram's cloud may differ from [S].
//
//   - The secret is 1 to 256 characters A-Z, a-z, 0-9, _ and -, and comes in the header X-Telegram-Bot-Api-Secret-Token
//     with every request if it was given to setWebhook [D, setWebhook]. NewSource refuses to start without one. Several may
//     be given, so that a rotation loses nothing: accept old and new, call setWebhook with the new one, drop the old one.
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
