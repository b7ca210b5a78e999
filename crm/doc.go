// Package crm says what an adapter is: the calls that put an enquiry into a CRM, what the CRM guarantees about a
// repeated call, and how an adapter tells what is certain about a call that went wrong.
//
// It owns the vocabulary only. Who calls the adapter, when, and what follows from an answer is the business of package
// dedup; sending an HTTP request at most once is that of crm/crmhttp; proving that an adapter keeps what it declares is
// that of crm/crmtest.
//
// The smallest adapter has one method:
//
//	type myCRM struct{ http *crmhttp.Client }
//
//	func (m myCRM) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
//		var out struct{ ID string }
//		status, err := m.http.PostJSON(ctx, "https://crm.example/leads", map[string]string{"name": l.Name, "ext_id": op.ID}, &out)
//		switch {
//		case err != nil:
//			return "", err // crmhttp marks what is certain; the rest is unknown, and that is right
//		case status == http.StatusUnprocessableEntity:
//			return "", crm.Rejected(errors.New("create lead: the CRM refused the fields"))
//		case status != http.StatusCreated:
//			return "", fmt.Errorf("create lead: status %d", status)
//		}
//		return out.ID, nil
//	}
//
// Everything else is optional: notes, updates, stages and contacts ([Noter], [Updater], [Stager], [Contacter]), a
// look-up by operation id ([Finder]), a read-only health check ([Checker]) and a declaration of what the CRM guarantees
// ([Describer]). Without a declaration nothing is assumed: a call whose outcome is unknown is never repeated by itself.
//
// # One rule for errors
//
// An error that is not marked means: it is not known whether the CRM acted. A timeout, a reset connection, a bare 5xx, an
// unreadable body after a 2xx are all of that kind, and an adapter returns them as they are. Only what is certain is
// marked: [NotApplied], [Rejected], [Unavailable].
package crm
