// A scheduler extender that does no more than the protocol requires: the ceiling of `make bench-extender`.
//
// Filter answers one node, so kube-scheduler neither scores nodes nor calls prioritize. Bind writes the Binding. The
// program knows no devices: it takes the nodes in turn. Source of the JSON: k8s.io/kube-scheduler extender/v1.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// One that the API server does not state is as short as client-go's.
const pause = time.Second

type filterRequest struct{ NodeNames []string }

type filterAnswer struct {
	NodeNames   []string
	FailedNodes map[string]string
	Error       string
}

type bindRequest struct{ PodName, PodNamespace, PodUID, Node string }

type bindAnswer struct{ Error string }

type meta struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
}

type target struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

type binding struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   meta   `json:"metadata"`
	Target     target `json:"target"`
}

// extender binds pods through one pool of connections to the API server.
type extender struct {
	client *http.Client
	server string
	token  string
	// a slot for each bind that may be under way
	slots chan struct{}
	next  atomic.Uint64
}

func (e *extender) filter(given filterRequest) filterAnswer {
	if len(given.NodeNames) == 0 {
		return filterAnswer{Error: "no node names; set nodeCacheCapable"}
	}
	place := e.next.Add(1) % uint64(len(given.NodeNames))
	return filterAnswer{NodeNames: given.NodeNames[place : place+1], FailedNodes: map[string]string{}}
}

func (e *extender) bind(given bindRequest) bindAnswer {
	e.slots <- struct{}{}
	defer func() { <-e.slots }()
	body, err := json.Marshal(binding{
		APIVersion: "v1",
		Kind:       "Binding",
		Metadata:   meta{Name: given.PodName, Namespace: given.PodNamespace, UID: given.PodUID},
		Target:     target{APIVersion: "v1", Kind: "Node", Name: given.Node},
	})
	if err != nil {
		return bindAnswer{Error: err.Error()}
	}
	for {
		wait, err := e.post(fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/binding", given.PodNamespace, given.PodName), body)
		if err == nil {
			return bindAnswer{}
		}
		if wait == 0 {
			return bindAnswer{Error: err.Error()}
		}
		time.Sleep(wait)
	}
}

// post returns an error if the request failed, and the time after which it may succeed, if it may.
func (e *extender) post(path string, body []byte) (time.Duration, error) {
	request, err := http.NewRequest(http.MethodPost, e.server+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+e.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := e.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	// a connection is reused only after its whole response was read
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	switch {
	case response.StatusCode < http.StatusMultipleChoices:
		return 0, nil
	case response.StatusCode == http.StatusTooManyRequests:
		return retryAfter(response.Header), errors.New("the API server is busy")
	}
	return 0, fmt.Errorf("HTTP %d: %s", response.StatusCode, content)
}

func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		return pause
	}
	return time.Duration(seconds) * time.Second
}

// serve decodes requests and encodes responses.
func serve[Request, Answer any](answer func(Request) Answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var given Request
		content, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(content, &given)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		content, err = json.Marshal(answer(given))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(content)
	}
}

func main() {
	listen := flag.String("listen", "", "HOST:PORT for kube-scheduler")
	server := flag.String("server", "", "URL of the API server")
	authority := flag.String("authority", "", "file with the API server's authority")
	token := flag.String("token", "", "file with a token that may bind pods")
	binds := flag.Int("binds", 32, "binds that may be under way at once")
	flag.Parse()
	made, err := newExtender(*server, *authority, *token, *binds)
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/filter", serve(made.filter))
	http.HandleFunc("/bind", serve(made.bind))
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok")) })
	log.Fatal(http.ListenAndServe(*listen, nil))
}

func newExtender(server, authority, tokenFile string, binds int) (*extender, error) {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", authority)
	}
	// The default transport keeps two idle connections: a burst of binds would make a connection for nearly each.
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		MaxConnsPerHost:     binds,
		MaxIdleConns:        binds,
		MaxIdleConnsPerHost: binds,
	}
	return &extender{
		client: &http.Client{Transport: transport, Timeout: 30 * time.Second},
		server: server,
		token:  strings.TrimSpace(string(token)),
		slots:  make(chan struct{}, binds),
	}, nil
}
