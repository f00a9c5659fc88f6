#!/bin/sh
# A CDI specification that is valid JSON is refused where it has \/ or a character beyond U+FFFF as \uD83D\uDE00.
#
# Software: tags.cncf.io/container-device-interface v1.1.1, the library that containerd 2.4 has, with go.yaml.in/yaml/v3 v3.0.5.
# Documented (SPEC.md): the device configuration is in JSON format.
# Expected: any JSON text of the right form is accepted in a .json file. PHP escapes / as \/ by default, and
# ASCII-only encoders, such as Python's json.dumps, write characters beyond U+FFFF as two escapes.
# Seen: files of both endings are read as YAML 1.1, which has neither. The whole file is dropped.
#   plain: accepted
#   escaped slash: yaml: line 2: found unknown escape character
#   surrogate pair: yaml: line 2: found invalid Unicode character escape code
#
# Exits with 0 while this is so, and with 1 once it has changed. Needs Go 1.24 or later and a Go module proxy.
set -eu
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
cat >main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

const form = `{"cdiVersion": "0.6.0", "kind": "vendor.com/device", "devices": [
	{"name": "one", "containerEdits": {"env": ["NAME=%s"]}}]}`

func show(label, value string) {
	text := []byte(fmt.Sprintf(form, value))
	if !json.Valid(text) {
		panic("not JSON")
	}
	if err := os.WriteFile("spec.json", text, 0o644); err != nil {
		panic(err)
	}
	found := "accepted"
	if _, err := cdi.ReadSpec("spec.json", 0); err != nil {
		words := err.Error()
		found = words[strings.LastIndex(words, "yaml: "):]
	}
	fmt.Printf("%s: %s\n", label, found)
}

func main() {
	show("plain", "a/b")
	show("escaped slash", `a\/b`)
	show("surrogate pair", `\ud83d\ude00`)
}
GO
go mod init finding >/dev/null 2>&1
go get tags.cncf.io/container-device-interface/pkg/cdi@v1.1.1 >/dev/null 2>&1
go run . | tee output
cat >expected <<'TEXT'
plain: accepted
escaped slash: yaml: line 2: found unknown escape character
surrogate pair: yaml: line 2: found invalid Unicode character escape code
TEXT
cmp output expected || { echo "the behaviour has changed"; exit 1; }
