package main

import (
	"net"
	"sync"
	"time"
)

// Silent connections from a few addresses. A connection that is closed is opened again after a second.
type attack struct {
	routes       []route
	lock         sync.Mutex
	stopped      chan struct{}
	open, closed int
}

// Replaces the current attack.
func (a *attack) begin(sources, connections int) {
	a.end()
	stopped := make(chan struct{})
	a.lock.Lock()
	a.stopped = stopped
	a.lock.Unlock()
	for number := 0; number < connections; number++ {
		source := number % sources
		address := net.IPv4(127, 2, byte(source>>8), byte(source))
		go a.keep(address, a.routes[number/sources%len(a.routes)], stopped)
	}
}

func (a *attack) end() {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.stopped != nil {
		close(a.stopped)
		a.stopped = nil
	}
}

func (a *attack) keep(address net.IP, route route, stopped chan struct{}) {
	for {
		a.hold(address, route, stopped)
		select {
		case <-stopped:
			return
		case <-time.After(time.Second):
		}
	}
}

// Opens a connection, and returns when it is closed.
func (a *attack) hold(address net.IP, route route, stopped chan struct{}) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: address}, Timeout: limit}
	plain, err := dialer.Dial("tcp", route.address)
	if err != nil {
		return
	}
	a.change(1, 0)
	isClosed := make(chan struct{})
	go func() {
		defer close(isClosed)
		for buffer := make([]byte, 512); err == nil; {
			_, err = plain.Read(buffer)
		}
	}()
	select {
	case <-isClosed:
		a.change(-1, 1)
	case <-stopped:
		a.change(-1, 0)
	}
	plain.Close()
}

func (a *attack) change(open, closed int) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.open += open
	a.closed += closed
}

func (a *attack) counts() (open, closed int) {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.open, a.closed
}
