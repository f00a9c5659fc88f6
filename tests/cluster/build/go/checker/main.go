// Command checker runs in a test's container and says, as one JSON document, what the container got: device nodes, which of them
// can be opened how, environment and mounts.
//
//	checker [-open PATH]... [-number KIND:MAJOR:MINOR]... [-held DIR] [-report DIR] [-stay [-deaf]]
//
// It changes nothing but what it makes below /tmp, -held and -report.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// Environment variables of this prefix name the devices that a plugin gave.
const given = "GIVEN_"

// Opened says how a device node could be opened: "ok" or the kernel's words.
type Opened struct {
	Read  string `json:"read"`
	Write string `json:"write"`
}

// Seen is what the container got.
type Seen struct {
	Nodes  map[string]string `json:"nodes"`
	Opened map[string]Opened `json:"opened"`
	Env    map[string]string `json:"env"`
	Mounts map[string]string `json:"mounts"`
	// Shared lists device IDs that a living process of another container holds at this moment.
	Shared []string `json:"shared"`
}

type list []string

func (l *list) String() string         { return strings.Join(*l, ",") }
func (l *list) Set(value string) error { *l = append(*l, value); return nil }

func main() {
	var paths, numbers list
	flag.Var(&paths, "open", "device node to be opened")
	flag.Var(&numbers, "number", "device to be opened by a node of our own, as c:10:229")
	held := flag.String("held", "", "directory of one lock file for each device ID, which all containers see")
	report := flag.String("report", "", "directory for a copy of the document")
	stay := flag.Bool("stay", false, "run until SIGTERM")
	deaf := flag.Bool("deaf", false, "ignore SIGTERM, too")
	flag.Parse()

	// before anything is printed: whoever reads of this start can rely on it
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	seen := inspect(paths, numbers)
	if *held != "" {
		seen.Shared = hold(*held, seen.Env)
	}
	if err := say(seen, *report); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for *stay {
		<-terminated
		*stay = *deaf
	}
}

func inspect(paths, numbers []string) Seen {
	seen := Seen{Nodes: nodes(), Opened: map[string]Opened{}, Env: environment(), Mounts: mounts(), Shared: []string{}}
	for _, path := range paths {
		seen.Opened[path] = open(path)
	}
	for _, number := range numbers {
		seen.Opened[number] = openNumber(number)
	}
	return seen
}

// nodes lists every device node below /dev as "c 10:229".
func nodes() map[string]string {
	found := map[string]string{}
	_ = filepath.WalkDir("/dev", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeDevice == 0 {
			return nil
		}
		var stat syscall.Stat_t
		if syscall.Lstat(path, &stat) == nil {
			kind := "b"
			if stat.Mode&syscall.S_IFMT == syscall.S_IFCHR {
				kind = "c"
			}
			found[path] = fmt.Sprintf("%s %d:%d", kind, major(stat.Rdev), minor(stat.Rdev))
		}
		return nil
	})
	return found
}

func open(path string) Opened {
	return Opened{Read: try(path, syscall.O_RDONLY), Write: try(path, syscall.O_WRONLY)}
}

// openNumber makes a node: what the device cgroup refuses must not be had in this way either.
func openNumber(number string) Opened {
	var kind string
	var major, minor uint64
	if _, err := fmt.Sscanf(strings.ReplaceAll(number, ":", " "), "%s %d %d", &kind, &major, &minor); err != nil {
		return Opened{Read: err.Error(), Write: err.Error()}
	}
	mode := uint32(syscall.S_IFCHR)
	if kind == "b" {
		mode = syscall.S_IFBLK
	}
	path := filepath.Join("/tmp", strings.ReplaceAll(number, ":", "-"))
	if err := syscall.Mknod(path, mode|0o600, int(makeDevice(major, minor))); err != nil {
		return Opened{Read: "mknod: " + err.Error(), Write: "mknod: " + err.Error()}
	}
	defer os.Remove(path)
	return open(path)
}

func try(path string, flags int) string {
	descriptor, err := syscall.Open(path, flags|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err.Error()
	}
	_ = syscall.Close(descriptor)
	return "ok"
}

func environment() map[string]string {
	found := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		found[name] = value
	}
	return found
}

// mounts lists "ro" or "rw" by mount point.
func mounts() map[string]string {
	found := map[string]string{}
	table, _ := os.ReadFile("/proc/mounts")
	for _, line := range strings.Split(string(table), "\n") {
		if fields := strings.Fields(line); len(fields) > 3 {
			found[fields[1]], _, _ = strings.Cut(fields[3], ",")
		}
	}
	return found
}

// hold locks a file for each given device until this process ends, however it ends, and returns those that somebody else has locked.
func hold(folder string, env map[string]string) []string {
	shared := []string{}
	for name, ids := range env {
		if !strings.HasPrefix(name, given) {
			continue
		}
		for _, id := range strings.Split(ids, ",") {
			descriptor, err := syscall.Open(filepath.Join(folder, id), syscall.O_CREAT|syscall.O_RDWR, 0o600)
			if err == nil {
				err = syscall.Flock(descriptor, syscall.LOCK_EX|syscall.LOCK_NB)
			}
			if err != nil {
				shared = append(shared, id)
			}
		}
	}
	return shared
}

// say prints the document, and leaves a copy that appears whole or not at all.
func say(seen Seen, folder string) error {
	document, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	if folder != "" {
		copied, err := os.CreateTemp(folder, ".report-*")
		if err != nil {
			return err
		}
		if _, err := copied.Write(document); err != nil {
			return err
		}
		name := strings.TrimPrefix(filepath.Base(copied.Name()), ".")
		if err := os.Rename(copied.Name(), filepath.Join(folder, name+".json")); err != nil {
			return err
		}
	}
	_, err = fmt.Println(string(document))
	return err
}

// How Linux packs a device's number.
func major(number uint64) uint64 { return number>>8&0xfff | number>>32&^0xfff }
func minor(number uint64) uint64 { return number&0xff | number>>12&^0xff }
func makeDevice(major, minor uint64) uint64 {
	return minor&0xff | major&0xfff<<8 | minor&^0xff<<12 | major&^0xfff<<32
}
