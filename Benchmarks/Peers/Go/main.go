// server-go --mode MODE [--tls CERTIFICATE KEY]
//
// One goroutine per connection, with buffered readers and writers, as in Go's documentation. The environment
// variable GOMAXPROCS limits it to one processor.
package main

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"os"
)

// The size of `bufio`'s buffers.
const bufferSize = 16384

type server struct {
	mode     string
	settings *tls.Config
}

func main() {
	var certificate, key string
	server := server{}
	for i := 1; i < len(os.Args); i++ {
		switch os.Args[i] {
		case "--mode":
			i++
			server.mode = os.Args[i]
		case "--tls":
			certificate, key = os.Args[i+1], os.Args[i+2]
			i += 2
		default:
			log.Fatalf("server-go: unknown argument %q", os.Args[i])
		}
	}
	if certificate != "" {
		server.settings = settings(certificate, key)
	}
	if server.mode == "udp-echo" {
		echoDatagrams()
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Print(err)
			continue
		}
		go server.serve(connection)
	}
}

// TLS 1.3 with X25519 and, because TLS 1.3 suites cannot be chosen, Go's preference, which is
// TLS_AES_128_GCM_SHA256. No tickets.
func settings(certificate, key string) *tls.Config {
	identity, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		log.Fatal(err)
	}
	return &tls.Config{
		Certificates:           []tls.Certificate{identity},
		MinVersion:             tls.VersionTLS13,
		CurvePreferences:       []tls.CurveID{tls.X25519},
		SessionTicketsDisabled: true,
	}
}

func (s server) serve(connection net.Conn) {
	defer func() { connection.Close() }()
	if s.settings != nil && s.mode != "starttls" {
		connection = tls.Server(connection, s.settings)
	}
	var err error
	switch s.mode {
	case "echo":
		err = echo(connection)
	case "lines":
		err = echoLines(connection)
	case "count":
		err = countLines(connection)
	case "receive":
		err = receive(connection)
	case "source":
		err = send(connection)
	case "starttls":
		connection, err = s.startTLS(connection)
	default:
		log.Fatalf("server-go: unknown mode %q", s.mode)
	}
	if err != nil && err != io.EOF {
		log.Print(err)
	}
}

func echo(connection net.Conn) error {
	buffer := make([]byte, 65536)
	for {
		count, err := connection.Read(buffer)
		if err != nil {
			return err
		}
		if _, err = connection.Write(buffer[:count]); err != nil {
			return err
		}
	}
}

// Calls answer for each line, and flushes when no more complete input is buffered.
func eachLine(connection net.Conn, answer func(string, *bufio.Writer) error) error {
	reader := bufio.NewReaderSize(connection, bufferSize)
	writer := bufio.NewWriterSize(connection, bufferSize)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return err
		}
		if err = answer(line, writer); err != nil {
			return err
		}
		if reader.Buffered() == 0 {
			if err = writer.Flush(); err != nil {
				return err
			}
		}
	}
}

func echoLines(connection net.Conn) error {
	return eachLine(connection, func(line string, writer *bufio.Writer) error {
		_, err := writer.WriteString(line)
		return err
	})
}

func countLines(connection net.Conn) error {
	return eachLine(connection, func(line string, writer *bufio.Writer) error {
		return binary.Write(writer, binary.LittleEndian, uint64(len(line)))
	})
}

// The byte at a position of a stream: see pattern.h.
func patternByte(position uint64) byte {
	if value := byte(position % patternPeriod); value != '\n' {
		return value
	}
	return 251
}

const patternPeriod = 251

func receive(connection net.Conn) error {
	buffer := make([]byte, 65536)
	for {
		var expected uint64
		if err := binary.Read(connection, binary.LittleEndian, &expected); err != nil {
			return err
		}
		var position, right uint64
		for position < expected {
			room := buffer
			if left := expected - position; left < uint64(len(room)) {
				room = room[:left]
			}
			count, err := connection.Read(room)
			if err != nil {
				return err
			}
			if count == 0 {
				continue
			}
			end := position + uint64(count)
			if room[0] == patternByte(position) && room[count-1] == patternByte(end-1) {
				right += uint64(count)
			}
			position = end
		}
		if err := binary.Write(connection, binary.LittleEndian, right); err != nil {
			return err
		}
	}
}

func send(connection net.Conn) error {
	reader := bufio.NewReaderSize(connection, bufferSize)
	writer := bufio.NewWriterSize(connection, bufferSize)
	var pattern []byte
	for {
		var request struct{ Total, Size uint64 }
		if err := binary.Read(reader, binary.LittleEndian, &request); err != nil {
			return err
		}
		if request.Size == 0 {
			return nil
		}
		for position := uint64(len(pattern)); position < request.Size+patternPeriod; position++ {
			pattern = append(pattern, patternByte(position))
		}
		for position := uint64(0); position < request.Total; {
			count := request.Size
			if left := request.Total - position; left < count {
				count = left
			}
			start := position % patternPeriod
			if _, err := writer.Write(pattern[start : start+count]); err != nil {
				return err
			}
			position += count
		}
		if err := writer.Flush(); err != nil {
			return err
		}
	}
}

func (s server) startTLS(connection net.Conn) (net.Conn, error) {
	// The client sends its next bytes after the reply, so the discarded buffer is empty.
	if _, err := bufio.NewReader(connection).ReadString('\n'); err != nil {
		return connection, err
	}
	if _, err := io.WriteString(connection, "220 go ahead\r\n"); err != nil {
		return connection, err
	}
	secure := tls.Server(connection, s.settings)
	return secure, echo(secure)
}

func echoDatagrams() {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(socket.LocalAddr().(*net.UDPAddr).Port)
	buffer := make([]byte, 65536)
	for {
		count, sender, err := socket.ReadFromUDPAddrPort(buffer)
		if err != nil {
			log.Print(err)
			continue
		}
		if _, err = socket.WriteToUDPAddrPort(buffer[:count], sender); err != nil {
			log.Print(err)
		}
	}
}
