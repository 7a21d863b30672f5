// Go's crypto/tls: visits a port of 127.0.0.1 four times with TLS 1.2, and four times with TLS 1.3.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"os"
)

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func main() {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		settings := &tls.Config{
			InsecureSkipVerify: true, MinVersion: version, MaxVersion: version,
			ClientSessionCache: tls.NewLRUClientSessionCache(4),
		}
		for number := 0; number < 4; number++ {
			connection, err := tls.Dial("tcp", "127.0.0.1:"+os.Args[1], settings)
			check(err)
			fmt.Fprintf(connection, "GET / HTTP/1.0\r\n\r\n")
			_, err = io.ReadAll(connection)
			check(err)
			fmt.Printf("%x %v\n", version, connection.ConnectionState().DidResume)
			connection.Close()
		}
	}
}
