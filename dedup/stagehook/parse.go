package stagehook

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leadonce/leadonce/dedup"
)

// parse.go: the ready ParseFuncs.

// JSON reads our own protocol: see the package's doc.
func JSON(body []byte) (Change, error) {
	var in struct {
		EventID id        `json:"event_id"`
		LeadID  id        `json:"lead_id"`
		Stage   string    `json:"stage"`
		Version int64     `json:"version"`
		At      time.Time `json:"at"`
		Closed  bool      `json:"closed"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Change{}, err
	}
	return Change{EventID: string(in.EventID), StageChange: dedup.StageChange{
		LeadID: string(in.LeadID), Stage: in.Stage, Version: in.Version, At: in.At, Closed: in.Closed,
	}}, nil
}

// id is a string, or a whole number with all its digits.
type id string

func (i *id) UnmarshalJSON(raw []byte) error {
	var s string
	switch {
	case bytes.Equal(raw, []byte("null")):
		return nil
	case len(raw) > 0 && raw[0] == '"':
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
	default:
		if s = string(raw); strings.Trim(s, "-0123456789") != "" {
			return errors.New("an id is neither a string nor a whole number")
		}
	}
	*i = id(s)
	return nil
}

// Bitrix24Form reads the outgoing webhook of a Bitrix24 portal for leads (entityTypeID 1), deals (2) or the items of a smart
// process (its entityTypeId). Such a hook is a hint: it names the item and neither its stage nor an id of the event, so the
// adapter has to be a crm.StageReader. Bitrix24 does not repeat a hook that was not answered: a sweep over open deals, or
// somebody's next change, has to make up for one. Its token is in the form:
//
//	stagehook.Token(stagehook.InForm, "auth[application_token]", token)
//
// Smart processes share their events, so those of another one are an [ErrOther], and so is every event that is no change.
func Bitrix24Form(entityTypeID int) ParseFunc {
	own := strconv.Itoa(entityTypeID)
	return func(body []byte) (Change, error) {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return Change{}, err
		}
		name, entity := strings.ToUpper(form.Get("event")), ""
		switch {
		case name == "ONCRMLEADUPDATE":
			entity = "1"
		case name == "ONCRMDEALUPDATE":
			entity = "2"
		case name == "ONCRMDYNAMICITEMUPDATE", name == "ONCRMDYNAMICITEMUPDATE_"+own:
			if entity = form.Get("data[FIELDS][ENTITY_TYPE_ID]"); entity == "" {
				return Change{}, errors.New("no ENTITY_TYPE_ID")
			}
		case !strings.HasPrefix(name, "ON"):
			return Change{}, errors.New("no event is named")
		}
		if entity != own {
			return Change{}, ErrOther
		}
		n, err := strconv.ParseInt(form.Get("data[FIELDS][ID]"), 10, 64)
		if err != nil || n <= 0 {
			return Change{}, errors.New("no item is named")
		}
		// ts is when the hook was sent, not when the item was changed: it decides nothing.
		return Change{StageChange: dedup.StageChange{LeadID: strconv.FormatInt(n, 10)}}, nil
	}
}
