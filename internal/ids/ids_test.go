package ids

import "testing"

func TestUUID(t *testing.T) {
	// Golden: an operation_id must come out the same in every version, or a redelivery after an upgrade is a second lead.
	if got := UUID("lead.create", "a"); got != "48a45d03-d9c3-8fc7-baa0-c32f98536eb4" {
		t.Fatal(got)
	}
	if UUID("a", "bc") == UUID("ab", "c") || Digest("a", "bc") == Digest("ab", "c") || UUID("a") == UUID("a", "") {
		t.Fatal("different parts made the same id")
	}
}
