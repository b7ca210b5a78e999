// Package stagehook is the dedup.Source for what a CRM tells: that one of its leads stands in another stage, or only that
// something about it has changed. It knows which requests are genuine and what a delivery is; what a body of the host's own
// CRM says is told by a [ParseFunc].
//
// It owns neither the HTTP answer (dedup.Middleware does) nor what follows: that a late hook moves nothing back, that a hint
// makes the stage be read (crm.StageReader), and that a won lead's deal is closed, is the processor's.
//
//	func main() {
//		// ... the store st, the processor ...
//		auth := stagehook.Token(stagehook.InForm, "auth[application_token]", os.Getenv("BITRIX24_TOKEN"))
//		src, err := stagehook.New("bitrix24", auth, stagehook.Bitrix24Form(2), nil) // deals
//		if err != nil {
//			log.Fatal(err)
//		}
//		http.Handle("/bitrix24", dedup.Middleware(st, src, nil)(nil))
//		log.Fatal(http.ListenAndServe(":8443", nil))
//	}
//
// # What is one delivery
//
// One body is one event. Where the CRM numbers its events ([Change].EventID) a repeated number with the same change is a
// duplicate, whatever else its body says. Where it does not, each request is an event: two changes within a second may have
// the same bytes, and a hint that was taken for a repeat would be a change that nobody sees. A hint too many costs one reading.
//
// A token in the form is blanked before a body is stored.
//
// An authentic body that the ParseFunc can't read, or that names no lead, is stored in quarantine and answered 200. A ParseFunc
// sees the body alone, since bodies are stored and may be read again. What the query of the URL says belongs into the source:
// one path, one Source and one closure for each of its values. (A token in the query is seen by [Token].)
//
// # Our own protocol
//
// A CRM that can be taught what to send is best taught this: [JSON] reads it, and [HMAC] with Signature{Header:
// "Leadonce-Signature", Prefix: "v1="} takes what jsonhook.Sign makes of the body.
//
//	{"event_id": "e-991", "lead_id": "4711", "stage": "won", "version": 18, "at": "2026-08-24T09:30:00Z", "closed": true}
//
// lead_id is what the adapter's CreateLead returned, and the only field that is needed; it and event_id may also be whole
// numbers. Without stage it is a hint. version grows with every change of the lead; at is when it was changed, in RFC 3339;
// closed means won or lost. Give version, or at least at: they tell a late delivery from a new one. Other fields are
// skipped.
package stagehook
