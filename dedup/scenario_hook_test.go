package dedup_test

import (
	"testing"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/dedup/stagehook"
)

// scenario_hook_test.go: the CRM's hooks of scenarios, in our own protocol.

const hookHeader = "X-Hook-Token"

func stageHooks(t *testing.T) dedup.Source {
	src, err := stagehook.New("simulator", stagehook.Token(stagehook.InHeader, hookHeader, doorSecret), stagehook.JSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	return src
}
