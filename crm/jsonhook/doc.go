// Package jsonhook is the adapter for "POST this JSON to my URL": a back end of your own, or an n8n or Make scenario.
//
//	hook, err := jsonhook.New("https://backend.example/leads", &jsonhook.Options{Secret: os.Getenv("HOOK_SECRET")})
//
// It owns the protocol below. Sending at most once is the business of crm/crmhttp; when something is sent, that of dedup.
//
// # What is sent
//
// One POST for each operation, to one URL, with a JSON body that is the same at every attempt:
//
//	{"v": 1, "kind": "lead.create", "operation_id": "0d7c…", "key": "0d7c…", "tenant": "acme",
//	 "lead": {"title": "…", "name": "…", "phone": "…", "text": "…", "fields": {…}}}
//
// kind is lead.create, or one of those that [Options.Calls] switches on: note.add (with lead_id and note: text, ref),
// lead.update (lead_id and lead: the fields to change) and stage.set (lead_id and stage: to, from). A receiver refuses
// kinds that it does not know. v changes only if an old receiver would misread the new form.
//
// With [Options.Secret] each request carries Leadonce-Signature: v1=HMAC-SHA256 of the body in hex; [Verify] checks it.
// Under the guarantee crm.IdempotencyKey, and only then, a create carries Idempotency-Key with the same value as key.
//
// # What the receiver answers
//
//	2xx  {"id": "42"}                        made: a string or a number, which the CRM's look-ups know the lead by
//	2xx  {"applied": true}                   done; enough for note, update and stage
//	409  {"id": "42", "operation_id": "…"}   made by an earlier attempt, if operation_id is the one that was sent
//	422  {"applied": false, "code": "phone"} refused: will not be taken as it stands; so are 400 and every other status
//	401, 403 {"applied": false}              not taken, and the operation is not to blame: the adapter pauses
//	429, 5xx {"applied": false}              not taken, send it again later: after Retry-After, or "retry_after" seconds
//	                                         in the body, which means "later" under any status
//
// Everything else is unknown: nothing is sent again by itself, and a person or a look-up settles it. That holds for a bare
// 503, 429, 404 or 401 as well. They are what a proxy, a firewall or n8n itself answers in the receiver's place, and some of
// them do so after the receiver has acted: nginx for one that was too slow, for example. Only the receiver knows. So
// "certainly not" has to be said in its own words: "applied": false. Say it only if nothing was written, or all of it was
// rolled back.
//
// code is for the trail: letters, digits and _ - . only, 64 at most. No other text of an answer is repeated anywhere.
//
// # A receiver that makes no second lead
//
// Keep operation_id under a unique index, and answer a repeat with the id that is already there:
//
//	insert into leads (operation_id, …) values (…) on conflict (operation_id) do nothing;
//	select id from leads where operation_id = …;
//
// Then [Options.Guarantee] may declare crm.UniqueID, and a lost answer is simply asked for again. The package's example is
// such a receiver. Without the declaration nothing is repeated.
//
// # n8n and Make
//
// A webhook of n8n answers "Workflow was started" at once, one of Make "Accepted": a 200 without an id, which counts as
// unknown. Either let the scenario answer with an id (n8n: a "Respond to Webhook" node; Make: a "Webhook response"
// module), or set [Options.IDOptional]: any 2xx then counts as made, with the operation_id for its id. That is weaker:
// a scenario that fails later has lost the enquiry, and nobody here will know.
package jsonhook
