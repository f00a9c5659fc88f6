#!/bin/sh
# A CDI device that two files of /etc/cdi define is hidden in /var/run/cdi as well, although that directory takes precedence.
#
# Software: tags.cncf.io/container-device-interface v1.1.1, the library that containerd 2.4 has.
# Documented (package cdi): of several definitions, the one of the file with the highest priority is chosen, and files of a later
# directory have a higher priority.
# Expected: the definition in the later directory is used, whatever earlier directories hold.
# Seen: while two files of the earlier directory define the name, the library knows no such device.
#   one file in etc, one in run:  device found, from run
#   two files in etc, one in run: no device
#
# Exits with 0 while this is so, and with 1 once it has changed. Needs Go 1.24 or later and a Go module proxy.
set -eu
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func spec(path, value string) {
	text := `{"cdiVersion": "0.6.0", "kind": "vendor.com/device", "devices": [
		{"name": "one", "containerEdits": {"env": ["FROM=` + value + `"]}}]}`
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		panic(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		panic(err)
	}
}

func show(label string) {
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs("etc", "run"))
	if err != nil {
		panic(err)
	}
	found := "no device"
	if device := cache.GetDevice("vendor.com/device=one"); device != nil {
		found = "device found, " + device.ContainerEdits.Env[0]
	}
	fmt.Printf("%s: %s\n", label, found)
}

func main() {
	spec("etc/a.json", "etc")
	spec("run/a.json", "run")
	show("one file in etc, one in run")
	spec("etc/b.json", "etc")
	show("two files in etc, one in run")
}
GO
go mod init finding >/dev/null 2>&1
go get tags.cncf.io/container-device-interface/pkg/cdi@v1.1.1 >/dev/null 2>&1
go run . | tee output
cat >expected <<'TEXT'
one file in etc, one in run: device found, FROM=run
two files in etc, one in run: no device
TEXT
cmp output expected || { echo "the behaviour has changed"; exit 1; }
