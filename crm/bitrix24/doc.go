// Package bitrix24 is the adapter for Bitrix24: leads or deals through an incoming webhook.
//
//	b24, err := bitrix24.New(os.Getenv("B24_WEBHOOK"), &bitrix24.Options{Entity: bitrix24.Deal, AssignedTo: 17})
//
// The webhook is made under "Applications > Developer resources > Other > Incoming webhook" with the scope crm; its URL
// reads https://portal.example/rest/1/code/. The code in it is a password: it appears in no error, log or identity.
//
// It owns the translation between package crm and the REST methods crm.item.add, crm.item.list, crm.item.get,
// crm.item.update and crm.timeline.comment.add. Sending at most once is the business of crm/crmhttp.
//
// # What Bitrix24 guarantees: nothing about a repeat
//
// No idempotency key is documented, and no field that is unique. Each lead carries its operation id in originId, beside
// originatorId ("leadonce"), so that it can be looked up; that two items with one originId are refused is documented
// nowhere. So the adapter declares no guarantee: a create whose answer is lost is looked up, and else waits for a person.
// An empty look-up proves nothing either: the cloud lets a request run for 60 seconds, and items that the webhook's user
// may not read are left out of every list.
//
// # What an answer means
//
// Bitrix24 says "error": "CODE". Certainly not done (and so marked) is a create that is answered with:
//
//	503 QUERY_LIMIT_EXCEEDED, 429 OPERATION_TIME_LIMIT   not applied: both are checked before the method runs
//	503 OVERLOAD_LIMIT                                   unavailable: a block that only Bitrix24's support lifts
//	401, 403, and 400 ACCESS_DENIED or a plan's limit    unavailable: webhook, permission, plan, not this enquiry's fault
//	400, 405 with another code                           rejected
//
// Unknown is everything else: INTERNAL_SERVER_ERROR, ERROR_UNEXPECTED_ANSWER, any other 5xx, a 4xx without a code, a code
// in a 200, a page that is not JSON. The official Go SDK draws the same line.
//
// # Where the fields go
//
// A lead has title, name, phone, email (fm), the Telegram name (fm, type IM), text (comments), Campaign (utmCampaign) and
// ContactID (contactId). A deal has no name and no phone of its own: they are the first lines of its comments. Fields holds
// the rest by Bitrix24's own names: utmSource or UTM_SOURCE, sourceId, ufCrm_123 or UF_CRM_123.
//
// Bitrix24 ignores a field that it does not know. The answer to a create holds the whole item, so a field that is missing
// there, or a reference that did not stick, is logged as a warning. It is no more than that: the lead exists, and its id
// is confirmed.
//
// # Where an item stands
//
// crm.item.get answers with stageId, stageSemanticId ("P" in progress, "S" successful, "F" unsuccessful, of leads and deals
// alike), updatedTime, and of a deal also closed ("Y", "N"). CONVERTED is a lead's stage of group S, JUNK one of group F.
//
// updatedTime has whole seconds in every example of the documentation, and the portal's offset. So two changes within one
// second have one Version and one At: give dedup.Options.Transitions if that matters. In the documentation's own example it
// lies an hour ahead of the time of the answer: it orders the changes of one item, and is not to be compared with another
// clock. It changes with every field, not with the stage alone. That it never goes backwards is documented nowhere.
//
// Sources: apidocs.bitrix24.com (github.com/bitrix24/b24restdocs, as of August 2026): "crm.item.add", "crm.item.list",
// "crm.item.update", "crm.timeline.comment.add", "Error codes", "REST API limits", "Incoming and outgoing webhooks"; for
// stages https://apidocs.bitrix24.com/api-reference/crm/universal/crm-item-get.html, …/universal/object-fields.html, and
// https://apidocs.bitrix24.com/tutorials/crm/how-to-get-lists/how-to-get-stages-with-semantics.html.
// An "OAuth application" works differently and is not supported.
package bitrix24
