package main

import (
	"sort"
	"sync"
	"time"
)

// The counts of one scenario. A connection is counted as made in the scenario in which it began, and as
// finished or failed in the scenario in which it ended.
type counts struct {
	Made     map[string]int `json:"made"`
	Finished map[string]int `json:"finished"`
	Failed   map[string]int `json:"failed"`
	// Connections that resumed a session, and those of them that another process had issued.
	Resumed map[string]int `json:"resumed"`
	Across  int            `json:"across"`
	// By route: connections that offered a session which the server did not resume.
	Refused map[string]int `json:"refused"`
	// The serial numbers of the certificates in full handshakes without a load balancer's TLS.
	Certificates map[string]int `json:"certificates"`
	// In seconds: the time from the start of a connection to the first reply, and the time to each later one.
	LongestWait float64 `json:"longestWait"`
	UsualWait   float64 `json:"usualWait"`
	waits       []float64
}

type scenario struct {
	Name   string  `json:"name"`
	Counts *counts `json:"counts"`
}

type tally struct {
	lock          sync.Mutex
	scenarios     []scenario
	opening, open int
}

func newTally() *tally { return &tally{} }

// Returns whether this is the first scenario.
func (t *tally) begin(name string) bool {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.scenarios = append(t.scenarios, scenario{name, &counts{
		Made: map[string]int{}, Finished: map[string]int{}, Failed: map[string]int{}, Resumed: map[string]int{},
		Refused: map[string]int{}, Certificates: map[string]int{},
	}})
	return len(t.scenarios) == 1
}

// Calls the function with the counts of the current scenario.
func (t *tally) add(change func(*counts)) {
	t.lock.Lock()
	defer t.lock.Unlock()
	change(t.scenarios[len(t.scenarios)-1].Counts)
}

// Counts connections that have no reply yet, and open connections.
func (t *tally) change(opening, open int) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.opening += opening
	t.open += open
}

func (t *tally) wait(duration time.Duration) {
	t.add(func(counts *counts) { counts.waits = append(counts.waits, duration.Seconds()) })
}

func sum(numbers map[string]int) int {
	total := 0
	for _, number := range numbers {
		total += number
	}
	return total
}

func (t *tally) progress() map[string]any {
	t.lock.Lock()
	defer t.lock.Unlock()
	total := 0
	for _, scenario := range t.scenarios {
		total += sum(scenario.Counts.Made)
	}
	current := t.scenarios[len(t.scenarios)-1]
	return map[string]any{
		"total": total, "scenario": current.Name, "made": sum(current.Counts.Made),
		"failed": sum(current.Counts.Failed), "opening": t.opening, "open": t.open,
	}
}

func (t *tally) report() []scenario {
	t.lock.Lock()
	defer t.lock.Unlock()
	for _, scenario := range t.scenarios {
		waits := scenario.Counts.waits
		sort.Float64s(waits)
		if len(waits) > 0 {
			scenario.Counts.LongestWait = waits[len(waits)-1]
			scenario.Counts.UsualWait = waits[len(waits)*99/100]
		}
	}
	return t.scenarios
}
