// Prints the lines that a server sends over TLS, and reconnects when the connection is lost. Exits when the
// server sends "bye".
//
//     swift run --package-path Examples reconnecting-client news.example.org 6697
//
// To trust a CA of your own, set SSL_CERT_FILE=ca.pem in the environment.

import AsyncSockets
import Foundation

let host = CommandLine.arguments.dropFirst().first ?? "localhost"
let port = CommandLine.arguments.dropFirst(2).first.flatMap(Int.init) ?? 6697
do {
    // Article: reconnecting
    let connections = AsyncSocket.reconnecting(
        to: host, port: port, tls: .client, backOff: BackOff(from: .milliseconds(100), to: .seconds(30)),
        onFailure: { error, delay in print("not connected: \(error); again in \(delay)") })
    reading: for try await socket in connections {
        print("connected")
        do {
            for try await line in socket.lines(idleTimeout: .seconds(300)) {
                if line == "bye" { break reading }
                print(line)
            }
            print("the server closed the connection")
        } catch let error as AsyncSocketError {
            print("the connection failed: \(error)")
        }
    }
    // Article: end
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
