// A chat server that identifies members by the common name of their client certificate. Shows a delegate on
// the main actor, timeouts, flow control for slow readers, and a graceful shutdown on SIGTERM.
//
//     swift run --package-path Examples chat-server 4433
//
// Run it in a folder with server.pem and server.key (the server's certificate and key) and clients.pem (the
// CA that issued the members' certificates). Then:
//
//     openssl s_client -connect localhost:4433 -CAfile ca.pem -cert alice.pem -key alice.key -quiet
//
// The optional second argument is the idle timeout in seconds.

import Dispatch
import Foundation

let arguments = CommandLine.arguments
let port = arguments.dropFirst().first.flatMap(UInt16.init) ?? 4433
let limits = ChatServer.Limits(idleSeconds: arguments.dropFirst(2).first.flatMap(Double.init) ?? 300)
let server = ChatServer(limits: limits)
let termination = DispatchSource.makeSignalSource(signal: SIGTERM, queue: .main)
termination.setEventHandler {
    MainActor.assumeIsolated { server.shutDown() }
}
termination.activate()
do {
    try server.start(onPort: port)
    dispatchMain()
} catch {
    log("cannot start: \(error)")
    exit(EXIT_FAILURE)
}

/// Prints a line without buffering, even to a pipe.
func log(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}
