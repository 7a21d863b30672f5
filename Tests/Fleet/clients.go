package main

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	random "math/rand"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The time limit for each step of a connection.
const limit = 30 * time.Second

// How many clients of each kind run at the same time.
var clients = map[string]int{"short": 12, "resumed": 20, "starttls": 12, "long": 60}

type load struct {
	tally   *tally
	roots   *x509.CertPool
	stopped chan struct{}
	clients []*client
}

// A client opens one connection after another, each through the next route.
type client struct {
	*load
	kind    string
	address net.IP
	version uint16
	random  *random.Rand
	routes  []route
	caches  map[route]*cache
	visits  atomic.Int64
}

// The latest session of a client on a route, and the process that issued it.
type cache struct {
	session *tls.ClientSessionState
	isNew   bool
	issuer  int
}

func (c *cache) Get(string) (*tls.ClientSessionState, bool) { return c.session, c.session != nil }

func (c *cache) Put(_ string, session *tls.ClientSessionState) { c.session, c.isNew = session, true }

func (l *load) start(group *sync.WaitGroup, secure, smtp []route) {
	host := 0
	for kind, count := range clients {
		routes := secure
		if kind == "starttls" {
			routes = smtp
		}
		for number := 0; number < count; number++ {
			host++
			client := &client{
				load: l, kind: kind, address: net.IPv4(127, 1, 0, byte(host)), version: tls.VersionTLS13,
				random: random.New(random.NewSource(int64(host))), routes: routes, caches: map[route]*cache{},
			}
			if host%2 == 0 {
				client.version = tls.VersionTLS12
			}
			l.clients = append(l.clients, client)
			group.Add(1)
			go client.run(group)
		}
	}
}

func (l *load) isStopped() bool {
	select {
	case <-l.stopped:
		return true
	default:
		return false
	}
}

// Returns how often each client that resumes sessions has used each of its routes.
func (l *load) rounds() int64 {
	rounds := int64(math.MaxInt64)
	for _, client := range l.clients {
		if client.kind != "short" && client.kind != "long" {
			rounds = min(rounds, client.visits.Load()/int64(len(client.routes)))
		}
	}
	return rounds
}

func min(one, other int64) int64 {
	if one < other {
		return one
	}
	return other
}

func (c *client) run(group *sync.WaitGroup) {
	defer group.Done()
	for number := c.random.Intn(len(c.routes)); !c.isStopped(); number++ {
		(&connection{client: c, route: c.routes[number%len(c.routes)]}).run()
		c.visits.Add(1)
	}
}

type connection struct {
	*client
	route      route
	plain      net.Conn
	secure     *tls.Conn
	replies    *bufio.Reader
	server     int // the process ID of the server, after its first reply
	begun      time.Time
	isAnswered bool
}

func (c *connection) run() {
	c.begun = time.Now()
	c.tally.add(func(counts *counts) { counts.Made[c.kind]++ })
	c.tally.change(1, 1)
	err := c.converse()
	if !c.isAnswered {
		c.tally.change(-1, 0)
	}
	c.tally.change(0, -1)
	if err == nil {
		c.tally.add(func(counts *counts) { counts.Finished[c.kind]++ })
		return
	}
	c.tally.add(func(counts *counts) { counts.Failed[c.kind]++ })
	failure := map[string]any{
		"kind": c.kind, "route": c.route.name, "server": c.server, "seconds": time.Since(c.begun).Seconds(),
		"error": err.Error(), "client": "", "time": float64(time.Now().UnixMilli()) / 1000,
	}
	if c.plain != nil {
		failure["client"] = c.plain.LocalAddr().String()
	}
	printJSON(map[string]any{"failure": failure})
	time.Sleep(100 * time.Millisecond)
}

func (c *connection) converse() error {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: c.address}, Timeout: limit}
	plain, err := dialer.Dial("tcp", c.route.address)
	if err != nil {
		return err
	}
	c.plain = plain
	defer plain.Close()
	plain.SetDeadline(time.Now().Add(limit))
	if c.kind == "starttls" {
		if err := upgrade(plain); err != nil {
			return fmt.Errorf("before TLS: %w", err)
		}
	}
	if err := c.handshake(); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	if err := c.exchangeAll(); err != nil {
		return err
	}
	return c.end()
}

// Requests TLS with SMTP's commands.
func upgrade(plain net.Conn) error {
	lines := bufio.NewReader(plain)
	for _, step := range []struct{ command, reply string }{
		{"", "220"}, {"EHLO localhost\r\n", "250"}, {"STARTTLS\r\n", "220"},
	} {
		if _, err := io.WriteString(plain, step.command); err != nil {
			return err
		}
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return err
			}
			if !strings.HasPrefix(line, step.reply) {
				return fmt.Errorf("the reply to %q is %q", step.command, line)
			}
			if line[3] == ' ' {
				break
			}
		}
	}
	if lines.Buffered() > 0 {
		return errors.New("the server sent data after its reply to STARTTLS")
	}
	return nil
}

func (c *connection) handshake() error {
	settings := &tls.Config{RootCAs: c.roots, ServerName: "localhost", MaxVersion: c.version}
	var known *cache
	if c.kind == "resumed" || c.kind == "starttls" {
		known = c.caches[c.route]
		if known == nil {
			known = &cache{}
			c.caches[c.route] = known
		}
		settings.ClientSessionCache = known
	}
	hasSession := known != nil && known.session != nil
	if known != nil {
		known.isNew = false
	}
	c.secure = tls.Client(c.plain, settings)
	c.replies = bufio.NewReader(c.secure)
	if err := c.secure.Handshake(); err != nil {
		return err
	}
	state := c.secure.ConnectionState()
	if state.Version != c.version {
		return fmt.Errorf("the server selected version %x", state.Version)
	}
	// The first reply names the process.
	if err := c.exchange(2_000); err != nil {
		return err
	}
	c.tally.add(func(counts *counts) {
		switch {
		case state.DidResume:
			counts.Resumed[c.kind]++
			if known.issuer != c.server {
				counts.Across++
			}
		case hasSession:
			counts.Refused[c.route.name]++
		}
		if !state.DidResume && !strings.HasSuffix(c.route.name, "encrypting") {
			counts.Certificates[state.PeerCertificates[0].SerialNumber.Text(16)]++
		}
	})
	if known != nil && known.isNew {
		known.issuer = c.server
	}
	return nil
}

// Random text without line ends.
var text = func() string {
	bytes := make([]byte, 1<<20)
	if _, err := rand.Read(bytes); err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(bytes)
}()

// Sends a random line of at most this length, and compares the reply.
func (c *connection) exchange(maximum int) error {
	begun := time.Now()
	c.secure.SetDeadline(begun.Add(limit))
	count := 1 + c.random.Intn(maximum)
	start := c.random.Intn(len(text) - count)
	line := text[start : start+count]
	if _, err := io.WriteString(c.secure, line+"\r\n"); err != nil {
		return err
	}
	reply, err := c.replies.ReadString('\n')
	if err != nil {
		return fmt.Errorf("after %d bytes of a reply: %w", len(reply), err)
	}
	var server int
	if _, err := fmt.Sscanf(reply, "%d ", &server); err != nil || reply != fmt.Sprintf("%d %s\r\n", server, line) {
		return fmt.Errorf("the reply to %d bytes is wrong: %.200q", count, reply)
	}
	if !c.isAnswered {
		c.isAnswered, c.server, begun = true, server, c.begun
		c.tally.change(-1, 0)
	}
	if c.server != server {
		return fmt.Errorf("process %d replied instead of %d", server, c.server)
	}
	c.tally.wait(time.Since(begun))
	return nil
}

// Exchanges further lines, on a long connection for 4 to 12 seconds.
func (c *connection) exchangeAll() error {
	if c.kind != "long" {
		return c.exchange(5_000)
	}
	for end := c.begun.Add(c.between(4_000, 12_000)); time.Now().Before(end); {
		time.Sleep(c.between(100, 400))
		if err := c.exchange(60_000); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) between(low, high int) time.Duration {
	return time.Duration(low+c.random.Intn(high-low)) * time.Millisecond
}

// Sends close_notify, and expects the server's.
func (c *connection) end() error {
	c.secure.SetDeadline(time.Now().Add(limit))
	if err := c.secure.CloseWrite(); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	if rest, err := io.ReadAll(c.replies); err != nil {
		return fmt.Errorf("at the end: %w", err)
	} else if len(rest) > 0 {
		return fmt.Errorf("at the end: %d bytes after the last reply", len(rest))
	}
	return nil
}
