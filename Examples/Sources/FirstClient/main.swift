// A client with a delegate that uses TLS from the first byte and reports errors.
//
//     swift run --package-path Examples first-client imap.example.org 993
//
// The server must send the first line, as mail servers do. To trust a CA of your own, set
// SSL_CERT_FILE=ca.pem in the environment.

// README: client
import AsyncSockets
import Dispatch
import Foundation

/// Prints the first line that the server sends.
final class Greeter: AsyncSocketDelegate {
    func socketDidSecure(_ socket: AsyncSocket) {
        if let session = socket.tlsSession { print("secure: \(session.protocolVersion), \(session.cipherSuite)") }
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        print(String(decoding: data, as: UTF8.self), terminator: "")
        socket.disconnect()
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        if let error { print("failed: \(error.localizedDescription)") }
        exit(error == nil ? EXIT_SUCCESS : EXIT_FAILURE)
    }
}

let host = CommandLine.arguments.dropFirst().first ?? "imap.example.org"
let port = CommandLine.arguments.dropFirst(2).first.flatMap(UInt16.init) ?? 993
let greeter = Greeter()  // the socket does not retain its delegate
let socket = AsyncSocket(delegate: greeter, delegateQueue: .main)
do {
    try socket.connect(toHost: host, onPort: port, withTimeout: 10)
    try socket.beginTLS(settings: .client)
    socket.readData(to: AsyncSocket.crlf, withTimeout: 10, maxLength: 1_000)
    dispatchMain()
} catch {
    print("cannot connect: \(error)")
    exit(EXIT_FAILURE)
}
// README: end
