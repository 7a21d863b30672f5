package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Whether a stream is closed or broken.
func isEnd(err error) bool {
	return isReset(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

type server struct {
	tally  *tally
	kind   string
	config *tls.Config
}

func (s *server) listen() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				fail(err)
			}
			go s.run(connection)
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func (s *server) run(connection net.Conn) {
	s.tally.opened()
	defer s.tally.closed()
	defer connection.Close()
	stream, err := s.secure(connection)
	if err != nil {
		// The client may leave during the handshake.
		if !isEnd(err) {
			s.tally.fault("server, %s: handshake: %v", s.kind, err)
		}
		return
	}
	for s.serve(connection, stream) {
	}
	if stream != connection {
		stream.SetDeadline(time.Now().Add(limit))
		stream.Close()
	}
}

func (s *server) secure(connection net.Conn) (net.Conn, error) {
	connection.SetDeadline(time.Now().Add(limit))
	if s.kind == "plain" {
		return connection, nil
	}
	if s.kind == "startTLS" {
		if err := s.converse(connection); err != nil {
			return nil, err
		}
	}
	secure := tls.Server(connection, s.config)
	err := secure.Handshake()
	if err == nil {
		s.tally.secured(secure.ConnectionState().DidResume)
	}
	return secure, err
}

// The dialogue of SMTP (RFC 3207), with any number of bytes per read.
func (s *server) converse(connection net.Conn) error {
	fmt.Fprint(connection, "220 soak ESMTP\r\n")
	// The client sends each command after the reply to the previous command, so nothing else is read ahead.
	lines := bufio.NewReader(connection)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		switch verb := strings.ToUpper(strings.Fields(line + " x")[0]); verb {
		case "EHLO":
			fmt.Fprint(connection, "250-soak\r\n250 STARTTLS\r\n")
		case "STARTTLS":
			if lines.Buffered() > 0 {
				return errors.New("bytes after STARTTLS")
			}
			_, err := fmt.Fprint(connection, "220 go ahead\r\n")
			return err
		default:
			return fmt.Errorf("unexpected command %q", line)
		}
	}
}

// Serves an exchange. Returns whether the connection is used again.
func (s *server) serve(connection, stream net.Conn) bool {
	stream.SetDeadline(time.Now().Add(limit))
	header := make([]byte, headerLength)
	count, err := io.ReadFull(stream, header)
	if count == 0 && (err == io.EOF || isReset(err)) {
		return false
	}
	exchange, isValid := parse(header)
	if err == nil && !isValid {
		s.tally.fault("server, %s: no header: %v", s.kind, header)
		return false
	}
	if err == nil {
		err = s.exchange(exchange, connection, stream)
	}
	if err != nil {
		if !(header[0] == endCut && isEnd(err)) {
			s.tally.fault("server, %s, %+v: %v", s.kind, exchange, err)
		}
		return false
	}
	s.tally.exchanged(exchange)
	return exchange.end == endNone || exchange.end == endCut
}

func (s *server) exchange(exchange exchange, connection, stream net.Conn) error {
	if err := receive(stream, exchange.seed, exchange.request); err != nil {
		return err
	}
	if exchange.end == endHalfClose {
		if count, err := stream.Read(make([]byte, 1)); count != 0 || err != io.EOF {
			return fmt.Errorf("%d bytes after the end: %v", count, err)
		}
	}
	reply := s.tally.planted(pattern(^exchange.seed, exchange.sent()))
	if _, err := stream.Write(reply); err != nil {
		return err
	}
	if exchange.end == endReset {
		reset(connection)
	}
	return nil
}

func reset(connection net.Conn) {
	connection.(*net.TCPConn).SetLinger(0)
	connection.Close()
}

// Receives a pattern and checks each byte.
func receive(stream net.Conn, seed uint64, count int) error {
	buffer := make([]byte, 32_768)
	for done := 0; done < count; {
		part := buffer
		if count-done < len(part) {
			part = part[:count-done]
		}
		length, err := stream.Read(part)
		if !matches(seed, done, part[:length]) {
			return fmt.Errorf("wrong bytes at %d of %d", done, count)
		}
		done += length
		if err != nil && done < count {
			return &partial{done, err}
		}
	}
	return nil
}

// The error after which a part of a pattern was received.
type partial struct {
	count int
	cause error
}

func (p *partial) Error() string { return fmt.Sprintf("after %d bytes: %v", p.count, p.cause) }
func (p *partial) Unwrap() error { return p.cause }
