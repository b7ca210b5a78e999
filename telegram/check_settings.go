package telegram

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// check_settings.go: kinds that are not delivered, and the rest of what can be set.

// lost is what is missed without a kind that can be an enquiry.
var lost = map[string]string{
	"message":                 "messages, which is nearly every enquiry",
	"edited_message":          "corrections: an enquiry stays as it was written first",
	"business_message":        "what clients write to a business account that the bot serves",
	"edited_business_message": "corrections of what clients write to a business account",
	"guest_message":           "what is asked of the bot in chats that it is not in",
	"callback_query":          "pressed buttons",
	"chat_join_request":       "requests to join a chat",
	"shipping_query":          "the address step of an order, which then can't be paid",
	"pre_checkout_query":      "the last step of an order, which then can't be paid",
	"purchased_paid_media":    "bought media",
	"my_chat_member":          "who blocked the bot or came back",
	"chat_member":             "who joined or left a chat",
	"message_reaction":        "reactions",
	"message_reaction_count":  "numbers of anonymous reactions",
}

func assessKinds(info WebhookInfo, want Webhook) (list []Finding) {
	allowed, said := info.AllowedUpdates, "The list of kinds that Telegram delivers (allowed_updates) lacks "
	if len(allowed) == 0 {
		allowed = defaultUpdates()
		said = "Telegram delivers its default kinds (no allowed_updates), and those lack "
	}
	set := "Set the webhook again with a list that names it (leadbot set-webhook -updates KIND,...). A call without a list keeps " +
		"the old one."
	lacks := func(name string) string {
		if l := lost[name]; l != "" {
			return name + " (" + l + ")"
		}
		return name
	}
	if want.AllowedUpdates != nil { // the host's own list: all of it is meant
		var missing []string
		for _, name := range want.AllowedUpdates {
			if !slices.Contains(allowed, name) {
				missing = append(missing, lacks(name))
			}
		}
		if len(missing) > 0 {
			list = append(list, Finding{CodeKinds, SeverityProblem, said + strings.Join(missing, ", ") + ".", set})
		}
		return list
	}
	usual := []string{"message", "edited_message", "callback_query"} // what nearly every bot lives on
	for _, name := range usual {
		if severity := map[bool]Severity{true: SeverityProblem, false: SeverityWarning}[name == "message"]; !slices.Contains(allowed, name) {
			list = append(list, Finding{CodeKinds, severity, said + lacks(name) + ".", set})
		}
	}
	var rest []string
	for _, k := range kinds {
		if k.asks && !slices.Contains(usual, k.name) && !slices.Contains(allowed, k.name) {
			rest = append(rest, k.name)
		}
	}
	if len(rest) > 0 {
		list = append(list, Finding{CodeKinds, SeverityOK, "Not delivered either, which is right for a bot that has no use for them: " +
			strings.Join(rest, ", ") + ".", ""})
	}
	return list
}

// held is how many updates dedup.Middleware takes at once by default (MiddlewareOptions.InFlight).
const held = 256

func assessRest(info WebhookInfo, want Webhook, now time.Time) (list []Finding) {
	add := func(code string, severity Severity, do, what string, args ...any) {
		list = append(list, Finding{code, severity, fmt.Sprintf(what, args...), do})
	}
	switch n := info.MaxConnections; {
	case want.MaxConnections > 0 && n > 0 && n != want.MaxConnections:
		add(CodeConnections, SeverityWarning, "Set the webhook again (leadbot set-webhook).",
			"max_connections is %d, and should be %d.", n, want.MaxConnections)
	case n > held:
		add(CodeConnections, SeverityWarning, "Lower it, or raise MiddlewareOptions.InFlight.",
			"max_connections is %d: by default the middleware holds %d updates at once and answers 503 beyond that.", n, held)
	case n > 0 && n < 4:
		add(CodeConnections, SeverityWarning, "Set the webhook again with Telegram's default, 40, or more (leadbot set-webhook).",
			"max_connections is %d: that many updates are delivered at once, and the others wait.", n)
	}
	if info.CustomCertificate {
		add(CodeCertificate, SeverityWarning, "When the server gets another certificate, the webhook has to be set again. With one of a "+
			"public authority none needs to be uploaded: set the webhook again without (leadbot set-webhook).",
			"A certificate was uploaded with the webhook: Telegram trusts that one.")
	}
	if want.IPAddress != "" && info.IPAddress != want.IPAddress {
		add(CodeIP, SeverityProblem, "Set the webhook again with the right address, or without one, so that Telegram resolves the name.",
			"Telegram posts to the address %s, and it should be %s.", info.IPAddress, want.IPAddress)
	}
	if age := now.Sub(info.LastSyncErrorAt); !info.LastSyncErrorAt.IsZero() && age < time.Hour {
		add(CodeSync, SeverityWarning, "Nothing can be done here; look again later.",
			"Telegram itself had trouble %s ago fetching the bot's updates from its data centres: some may come late.", round(age))
	}
	return list
}
