//go:build !unix

package pgtest

// proc_other.go: the package builds everywhere; servers are started on Unix only.

import (
	"os/exec"
	"runtime"
)

func unprivileged() (account, error) {
	return account{}, missing("servers for tests are started on Unix only, not on %s", runtime.GOOS)
}

func (a account) apply(*exec.Cmd) {}
