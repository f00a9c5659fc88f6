// Command cdi-oracle says what the CDI library of container runtimes makes of directories with specifications.
//
// It reads one JSON list of cases from standard input. A case is what lies in the two directories "etc" and "run", by path. It writes
// one JSON list: of each case the qualified names of all devices, sorted, and the library's first error of each path.
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// File is a text, octets, a link or a directory.
type File struct {
	Text   string `json:"text"`
	Octets []byte `json:"octets"`
	Link   string `json:"link"`
	Folder bool   `json:"folder"`
}

// Said is what the library made of one case.
type Said struct {
	Devices []string          `json:"devices"`
	Errors  map[string]string `json:"errors"`
}

func main() {
	var cases []map[string]File
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		log.Fatal(err)
	}
	said := make([]Said, 0, len(cases))
	for _, files := range cases {
		found, err := ask(files)
		if err != nil {
			log.Fatal(err)
		}
		said = append(said, found)
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		log.Fatal(err)
	}
}

func ask(files map[string]File) (Said, error) {
	root, err := os.MkdirTemp("", "cdi")
	if err != nil {
		return Said{}, err
	}
	defer os.RemoveAll(root)
	for path, file := range files {
		if err := place(filepath.Join(root, path), file); err != nil {
			return Said{}, err
		}
	}
	directories := cdi.WithSpecDirs(filepath.Join(root, "etc"), filepath.Join(root, "run"))
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), directories)
	if err != nil {
		return Said{}, err
	}
	// its errors are those of GetErrors
	_ = cache.Refresh()
	found := Said{Devices: append([]string{}, cache.ListDevices()...), Errors: map[string]string{}}
	for path, errs := range cache.GetErrors() {
		if shown, err := filepath.Rel(root, path); err == nil {
			found.Errors[shown] = errs[0].Error()
		}
	}
	return found, nil
}

func place(path string, file File) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	switch {
	case file.Link != "":
		return os.Symlink(file.Link, path)
	case file.Folder:
		return os.Mkdir(path, 0o755)
	case file.Octets != nil:
		return os.WriteFile(path, file.Octets, 0o644)
	}
	return os.WriteFile(path, []byte(file.Text), 0o644)
}
