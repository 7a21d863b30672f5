// Opens connections to a fleet of servers through load balancers, and checks every byte.
//
//	load -ca ca.pem -tls haproxy=127.0.0.1:1,nginx=127.0.0.1:2 -starttls haproxy=127.0.0.1:3
//
// It reads commands from the standard input, each on a line:
//
//	scenario NAME               counts under this name from now on; the first one starts the load
//	attack SOURCES CONNECTIONS  keeps silent connections from this number of addresses open
//	calm                        ends the attack
//	stop                        opens no more connections, and exits when the open ones have finished
//
// It prints lines of JSON: the progress four times a second, each failure, and finally the report. It exits
// immediately at the end of the input.
package main

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A port of a load balancer.
type route struct {
	name, address string
}

func parseRoutes(text string) []route {
	var routes []route
	for _, part := range strings.Split(text, ",") {
		name, address, found := strings.Cut(part, "=")
		if !found {
			log.Fatalf("%q is not NAME=ADDRESS", part)
		}
		routes = append(routes, route{name, address})
	}
	return routes
}

func readRoots(path string) *x509.CertPool {
	pem, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		log.Fatalf("%s contains no certificate", path)
	}
	return roots
}

var printing sync.Mutex

func printJSON(value any) {
	line, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

func main() {
	ca := flag.String("ca", "", "the file with the authority's certificate")
	secure := flag.String("tls", "", "routes to TLS servers: NAME=ADDRESS,…")
	starttls := flag.String("starttls", "", "routes to SMTP servers")
	attacked := flag.String("attacked", "", "routes for silent connections")
	flag.Parse()
	load := &load{tally: newTally(), roots: readRoots(*ca), stopped: make(chan struct{})}
	tls, smtp := parseRoutes(*secure), parseRoutes(*starttls)
	attack := &attack{routes: parseRoutes(*attacked)}

	var clients sync.WaitGroup
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		words := strings.Fields(commands.Text())
		switch {
		case len(words) >= 2 && words[0] == "scenario":
			isFirst := load.tally.begin(strings.Join(words[1:], " "))
			if isFirst {
				load.start(&clients, tls, smtp)
				go printProgress(load, attack)
			}
		case len(words) == 3 && words[0] == "attack":
			attack.begin(number(words[1]), number(words[2]))
		case len(words) == 1 && words[0] == "calm":
			attack.end()
		case len(words) == 1 && words[0] == "stop":
			close(load.stopped)
			go func() {
				clients.Wait()
				printJSON(map[string]any{"report": load.tally.report()})
				os.Exit(0)
			}()
		default:
			log.Fatalf("unknown command: %q", commands.Text())
		}
	}
	os.Exit(1)
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil || value < 1 {
		log.Fatalf("%q is not a positive number", text)
	}
	return value
}

func printProgress(load *load, attack *attack) {
	for range time.Tick(250 * time.Millisecond) {
		// Read before the counts, so that they include the last connections.
		isStopped := load.isStopped()
		progress := load.tally.progress()
		progress["rounds"], progress["stopped"] = load.rounds(), isStopped
		progress["silent"], progress["closed"] = attack.counts()
		printJSON(map[string]any{"progress": progress})
	}
}
