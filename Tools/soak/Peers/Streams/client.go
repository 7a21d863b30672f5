package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand"
	"net"
	"strings"
	"time"
)

// Opens one connection after another.
type client struct {
	tally   *tally
	kind    string
	port    string
	config  *tls.Config
	pause   float64
	choices *rand.Rand
}

func (c *client) run(delay float64) {
	c.tally.sleep(delay)
	for !c.tally.isStopping() {
		c.tally.opened()
		if err := c.converse(); err != nil {
			c.tally.fault("client, %s: %v", c.kind, err)
		}
		c.tally.closed()
	}
}

func (c *client) converse() error {
	connection, err := net.DialTimeout("tcp", "127.0.0.1:"+c.port, limit)
	if err != nil {
		return err
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(limit))
	if c.kind != "plain" && c.choices.Intn(100) < 3 {
		c.leave(connection)
		return nil
	}
	stream, canHalfClose, err := c.secure(connection)
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	for !c.tally.isStopping() {
		c.tally.sleep(math.Min(60, c.pause*c.choices.ExpFloat64()))
		if c.choices.Intn(100) < 3 {
			if c.choices.Intn(2) == 0 {
				reset(connection)
			}
			break
		}
		stream.SetDeadline(time.Now().Add(limit))
		exchange := choose(c.choices, canHalfClose)
		if err := c.exchange(exchange, connection, stream); err != nil {
			return fmt.Errorf("%+v: %w", exchange, err)
		}
		c.tally.exchanged(exchange)
		if exchange.end != endNone {
			break
		}
	}
	stream.Close()
	return nil
}

// Ends the connection during the dialogue or the handshake.
func (c *client) leave(connection net.Conn) {
	c.end(connection)
	c.secure(connection)
	c.tally.left()
}

// Closes the connection after a short time, with or without a reset.
func (c *client) end(connection net.Conn) {
	resets := c.choices.Intn(2) == 0
	time.AfterFunc(time.Duration(c.choices.Intn(20_000))*time.Microsecond, func() {
		if resets {
			reset(connection)
		}
		connection.Close()
	})
}

func (c *client) secure(connection net.Conn) (net.Conn, bool, error) {
	if c.kind == "plain" {
		return connection, true, nil
	}
	if c.kind == "startTLS" {
		if err := c.dialogue(connection); err != nil {
			return nil, false, err
		}
	}
	secure := tls.Client(connection, c.config)
	if err := secure.Handshake(); err != nil {
		return nil, false, err
	}
	state := secure.ConnectionState()
	c.tally.secured(state.DidResume)
	return secure, state.Version == tls.VersionTLS13, nil
}

func (c *client) dialogue(connection net.Conn) error {
	lines := bufio.NewReader(connection)
	for _, command := range []string{"", "EHLO soak\r\n", "STARTTLS\r\n"} {
		if _, err := io.WriteString(connection, command); err != nil {
			return err
		}
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return err
			}
			if !strings.HasPrefix(line, "2") {
				return fmt.Errorf("the reply to %q was %q", command, line)
			}
			if line[3] == ' ' {
				break
			}
		}
	}
	if lines.Buffered() > 0 {
		return errors.New("bytes after the reply to STARTTLS")
	}
	return nil
}

func (c *client) exchange(exchange exchange, connection, stream net.Conn) error {
	request := c.tally.planted(pattern(exchange.seed, exchange.request))
	message := append(exchange.header(), request...)
	// The server sees the kind of end before the end.
	_, err := stream.Write(message[:headerLength])
	if exchange.end == endCut {
		c.end(connection)
	}
	if err == nil {
		_, err = stream.Write(message[headerLength:])
	}
	if err == nil && exchange.end == endHalfClose {
		err = stream.(interface{ CloseWrite() error }).CloseWrite()
	}
	if err == nil {
		err = receive(stream, ^exchange.seed, exchange.reply)
	}
	var end *partial
	switch {
	case errors.As(err, &end) && exchange.end == endReset:
		if end.count > exchange.sent() || !isReset(err) {
			return err
		}
		return nil
	case exchange.end == endCut && (errors.Is(err, net.ErrClosed) || err != nil && isEnd(err)):
		return nil
	case err != nil:
		return err
	case exchange.end == endReset:
		return errors.New("the server did not reset the connection")
	case exchange.end == endHalfClose || exchange.end == endClose:
		if count, err := stream.Read(make([]byte, 1)); count != 0 || err != io.EOF {
			return fmt.Errorf("%d bytes after the reply: %v", count, err)
		}
	}
	return nil
}
