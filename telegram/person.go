package telegram

import (
	"strconv"
	"strings"

	"github.com/leadonce/leadonce/dedup"
)

// person.go: who asks, if anybody, and whose turn of speech an event belongs to.

// Telegram's stand-ins for senders that are no users (https://core.telegram.org/bots/api#message, from and sender_chat).
const (
	groupAnonymousBot = 1087968824 // an administrator who writes as the group
	channelBot        = 136817688  // somebody who writes as a channel
	serviceAccount    = 777000     // a channel's post in its linked group
)

// who returns the person who acts, and the chat in whose name it is done.
func who(k kind, o, chat object) (person, senderChat dedup.Person) {
	senderChat = chatPerson(o.object(k.asChat))
	if k.who == "" {
		return dedup.Person{}, senderChat
	}
	user := o.object(k.who)
	switch id := user.id("id"); {
	case k.shape == business && id != chat.id("id"):
		return dedup.Person{}, senderChat // the owner of the account, not the client
	case isPerson(user):
		return userPerson(user), senderChat
	case k.shape == guest && isPerson(o.object("guest_bot_caller_user")):
		return userPerson(o.object("guest_bot_caller_user")), senderChat
	case id != 0 && id != channelBot, o.flag("is_automatic_forward"):
		return dedup.Person{}, senderChat // a bot, an anonymous administrator, a channel's own post
	case senderChat.ID == "" || senderChat.ID == o.object("chat").text("id"):
		return dedup.Person{}, senderChat
	}
	return senderChat, senderChat
}

func isPerson(user object) bool {
	switch id := user.id("id"); id {
	case groupAnonymousBot, channelBot, serviceAccount:
		return false
	default:
		return id > 0 && !user.flag("is_bot")
	}
}

func userPerson(user object) dedup.Person {
	return dedup.Person{
		ID:       strconv.FormatInt(user.id("id"), 10),
		Name:     strings.TrimSpace(user.text("first_name") + " " + user.text("last_name")),
		Username: user.text("username"),
		Language: user.text("language_code"),
	}
}

func chatPerson(chat object) dedup.Person {
	id := chat.id("id")
	if id == 0 {
		return dedup.Person{}
	}
	return dedup.Person{ID: strconv.FormatInt(id, 10), Name: chat.text("title"), Username: chat.text("username")}
}

// orderingKey is the user in a private chat, else the chat, else (inline queries, payments, whatever names no chat) the
// acting user's private one, else the event itself. A guest message's chat is not among the bot's own: its id may be that
// of another chat there.
func (s *Source) orderingKey(k kind, q dedup.Enquiry, updateID string) string {
	scope, id := "event", updateID
	switch {
	case k.shape == guest && q.ChatID != "":
		scope, id = "chat", "guest:"+q.ChatID
	case q.Private:
		scope, id = "user", q.ChatID
	case q.ChatID != "":
		scope, id = "chat", q.ChatID
	case strings.HasPrefix(q.Person.ID, "-"):
		scope, id = "chat", q.Person.ID
	case q.HasPerson:
		scope, id = "user", q.Person.ID
	}
	return dedup.OrderingKey(s.tenant, Name, s.bot, scope, id)
}

// migration reads the two service messages of a group that became a supergroup, one in each of the two chats, in any order. The
// event's own key has to be that of its chat: without it nobody could say what moves.
func (s *Source) migration(q *dedup.Enquiry, o object, own string) {
	chat := func(id string) string { return dedup.OrderingKey(s.tenant, Name, s.bot, "chat", id) }
	if q.Service == "" || own != chat(q.ChatID) {
		return
	}
	other := func(field string) string {
		if id := o.id(field); id < 0 && itoa(id) != q.ChatID {
			return chat(itoa(id))
		}
		return ""
	}
	if q.MovedTo = other("migrate_to_chat_id"); q.MovedTo == "" {
		q.MovedFrom = other("migrate_from_chat_id")
	}
}
