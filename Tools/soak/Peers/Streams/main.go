// The peer of Tools/soak/run, which uses neither the library nor OpenSSL. It checks each byte.
//
//	streams serve FOLDER PLANT
//	streams connect FOLDER PLANT SEED PAUSE RAMP KIND:PORT:COUNT …
//
// Both print their counts as JSON each second. They stop on a line of standard input, and exit on the next.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The time limit for each step of a connection.
const limit = 120 * time.Second

func fail(err error) {
	fmt.Fprintln(os.Stderr, "streams:", err)
	os.Exit(1)
}

func main() {
	tally := newTally(os.Args[3])
	if os.Args[1] == "serve" {
		serve(tally, os.Args[2])
	} else {
		connect(tally, os.Args[2], os.Args[4:])
	}
	go tally.report()
	input := bufio.NewReader(os.Stdin)
	input.ReadString('\n')
	tally.stop()
	input.ReadString('\n')
}

func serve(tally *tally, folder string) {
	certificate, err := tls.LoadX509KeyPair(folder+"/server.pem", folder+"/server.key")
	if err != nil {
		fail(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	ports := map[string]int{}
	for _, kind := range []string{"plain", "tls", "startTLS"} {
		ports[kind] = (&server{tally, kind, config}).listen()
	}
	tally.print(map[string]any{"ports": ports})
}

func connect(tally *tally, folder string, words []string) {
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(folder + "/ca.pem")
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		fail(fmt.Errorf("cannot read ca.pem: %v", err))
	}
	seed, _ := strconv.ParseInt(words[0], 10, 64)
	pause, _ := strconv.ParseFloat(words[1], 64)
	ramp, _ := strconv.ParseFloat(words[2], 64)
	choices := rand.New(rand.NewSource(seed))
	for _, route := range words[3:] {
		parts := strings.Split(route, ":")
		count, _ := strconv.Atoi(parts[2])
		// The clients of a route share their sessions.
		var configs []*tls.Config
		for _, version := range []uint16{tls.VersionTLS13, tls.VersionTLS12} {
			configs = append(configs, &tls.Config{
				RootCAs: roots, ServerName: "localhost", MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(64),
			})
		}
		for number := 0; number < count; number++ {
			client := &client{tally, parts[0], parts[1], configs[number%2], pause, rand.New(rand.NewSource(choices.Int63()))}
			go client.run(ramp * choices.Float64())
		}
	}
}

type tally struct {
	sync.Mutex
	plant     string
	messages  int
	Live      int            `json:"live"`
	Made      int            `json:"made"`
	Exchanges int            `json:"exchanges"`
	Bytes     int            `json:"bytes"`
	Secured   int            `json:"secured"`
	Resumed   int            `json:"resumed"`
	Cancelled int            `json:"cancelled"`
	Ends      map[string]int `json:"ends"`
	Faults    int            `json:"faults"`
	stopped   chan struct{}
	output    sync.Mutex
}

func newTally(plant string) *tally {
	return &tally{plant: plant, Ends: map[string]int{}, stopped: make(chan struct{})}
}

func (t *tally) add(change func()) {
	t.Lock()
	defer t.Unlock()
	change()
}

func (t *tally) stop() { close(t.stopped) }

func (t *tally) isStopping() bool {
	select {
	case <-t.stopped:
		return true
	default:
		return false
	}
}

func (t *tally) sleep(seconds float64) {
	select {
	case <-t.stopped:
	case <-time.After(time.Duration(seconds * float64(time.Second))):
	}
}

func (t *tally) opened() { t.add(func() { t.Live++; t.Made++ }) }
func (t *tally) closed() { t.add(func() { t.Live-- }) }
func (t *tally) left()   { t.add(func() { t.Cancelled++ }) }

func (t *tally) secured(isResumed bool) {
	t.add(func() {
		t.Secured++
		if isResumed {
			t.Resumed++
		}
	})
}

func (t *tally) exchanged(exchange exchange) {
	t.add(func() {
		t.Exchanges++
		t.Bytes += exchange.request + exchange.sent()
		t.Ends[endNames[exchange.end]]++
	})
}

// Returns the bytes to send, which are wrong if the run plants wrong bytes.
func (t *tally) planted(data []byte) []byte {
	t.add(func() {
		t.messages++
		if t.plant == "peer-byte" && t.messages%1_000 == 0 {
			data[len(data)/2] ^= 1
		}
	})
	return data
}

func (t *tally) fault(format string, values ...any) {
	t.add(func() { t.Faults++ })
	if t.Faults <= 50 {
		t.print(map[string]any{"fault": fmt.Sprintf(format, values...)})
	}
}

func (t *tally) print(message any) {
	text, err := json.Marshal(message)
	if err != nil {
		fail(err)
	}
	t.output.Lock()
	defer t.output.Unlock()
	if _, err := fmt.Printf("%s\n", text); err != nil {
		fail(err)
	}
}

func (t *tally) report() {
	for {
		t.add(func() { t.print(map[string]any{"counts": t, "latencies": []float64{}}) })
		time.Sleep(time.Second)
	}
}
