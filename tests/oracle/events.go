package main

import (
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// The kubelet reports these in its log alone: it offers no other sign that a plugin's list or end has been dealt with.
var logged = map[string]struct{ event, resourceKey string }{
	"Processed device updates for resource": {"listed", "resourceName"},
	"Device plugin disconnected":            {"ended", "resource"},
}

const verbosity = 2

// events counts what the kubelet says has happened to a resource, so that a driver waits for it instead of guessing when.
type events struct {
	mutex   sync.Mutex
	changed *sync.Cond
	counts  map[string]int
}

func newEvents() *events {
	e := &events{counts: map[string]int{}}
	e.changed = sync.NewCond(&e.mutex)
	return e
}

// install makes this the logger of every kubelet package.
func (e *events) install() klog.Logger {
	logger := logr.New(e)
	klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
	return logger
}

func (e *events) reset() {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.counts = map[string]int{}
}

// wait returns when the event has been seen at least so often for the resource since the last start.
func (e *events) wait(event, resource string, count int) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	for e.counts[event+" "+resource] < count {
		e.changed.Wait()
	}
}

// What follows is logr.LogSink.

func (e *events) Init(logr.RuntimeInfo) {}

func (e *events) Enabled(level int) bool { return level <= verbosity }

func (e *events) Info(_ int, message string, fields ...any) {
	known, ok := logged[message]
	if !ok {
		return
	}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == known.resourceKey {
			e.mutex.Lock()
			e.counts[known.event+" "+fmt.Sprint(fields[i+1])]++
			e.mutex.Unlock()
			e.changed.Broadcast()
		}
	}
}

func (e *events) Error(error, string, ...any) {}

func (e *events) WithValues(...any) logr.LogSink { return e }

func (e *events) WithName(string) logr.LogSink { return e }
