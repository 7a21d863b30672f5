// A load-balanced server with several processes. It echoes lines over TLS, and after STARTTLS with SMTP's
// commands on a second port.
//
//     swift run --package-path Examples fleet-server shared own 7007 7025
//
// All processes use the same folder `shared`, with server.pem and server.key (the server's certificate and
// key), and tickets (three keys, each a line from `openssl rand -base64 80 | tr -d '\n'`). Replace these
// files with rename(2), and the ticket keys at most once an hour. Changes are detected within about a second.
// Start each process with a different folder `own`, for its Unix-domain sockets, and with different ports.
//
// Start it again with the same arguments to replace the process. SIGTERM stops it. The load balancers must
// send PROXY headers. Connect to own/status for the state of the process as JSON:
//
//     socat - UNIX:own/status
//
// Scripts/test-fleet tests it with HAProxy and nginx.

import AsyncSockets
import Foundation

@main
struct FleetServer {
    let restart: HotRestart
    let credentials: Credentials
    let counter = Counter()
    let proxies: SocketListener.ProxyProtocol

    init(sharedFolder: String, ownFolder: String) async throws {
        credentials = try Credentials(folder: sharedFolder)
        restart = try await HotRestart(path: "\(ownFolder)/restart")
        proxies = .required(from: try .addresses(["127.0.0.0/8"]))
    }

    func run(ownFolder: String, port: Int, startTLSPort: Int) async throws {
        let tls = try listener("tls", port: port, tls: credentials.settings)
        let startTLS = try listener("starttls", port: startTLSPort)
        let inherited = restart.descriptors(named: "status")
        let status =
            try inherited.isEmpty ? SocketListener(path: "\(ownFolder)/status") : SocketListener(inherited: inherited)
        try await restart.takeOver(["tls": tls, "starttls": startTLS, "status": status])
        async let isReplaced = restart.untilReplaced(closeTimeout: .seconds(60))
        log("process \(getpid()) serves the ports \(tls.localPort) and \(startTLS.localPort)")
        try await withThrowingDiscardingTaskGroup { group in
            group.addTask {
                try await tls.reloadTLS(from: credentials.files, every: .seconds(1)) { try credentials.reload() }
            }
            group.addTask {
                try await serve(status) { socket in
                    try await socket.write(Status.measured(counter, tls, startTLS).json)
                }
            }
            group.addTask { try await serve(tls) { try await echo(on: $0) } }
            group.addTask {
                try await serve(startTLS) { socket in
                    try await socket.acceptStartTLS(
                        as: .smtp(greeting: "localhost ESMTP"), settings: credentials.settings,
                        dialogueTimeout: .seconds(20))
                    try await echo(on: socket)
                }
            }
        }
        log(try await isReplaced ? "replaced" : "stopped")
    }

    /// Returns a listener on the socket of the process that this process replaces, or on a new socket.
    private func listener(_ name: String, port: Int, tls: TLSServerSettings? = nil) throws -> SocketListener {
        let inherited = restart.descriptors(named: name)
        let listener =
            inherited.isEmpty
            ? try SocketListener(
                port: port, interface: "127.0.0.1", tls: tls, proxyProtocol: proxies, maximumConnections: 2_000)
            : try SocketListener(inherited: inherited, tls: tls, proxyProtocol: proxies, maximumConnections: 2_000)
        // Clients are counted by the addresses in the PROXY headers.
        listener.maximumConnectionsPerSource = 100
        return listener
    }

    private func serve(
        _ listener: SocketListener, _ body: @escaping @Sendable (AsyncSocket) async throws -> Void
    ) async throws {
        // Errors are not logged, because each health check of a load balancer is a connection without data.
        try await listener.run(
            untilSignals: [SIGTERM], closeTimeout: .seconds(60), idleTimeout: .seconds(60), onError: { _, _ in },
            body)
    }

    /// Sends each line back, after the process ID.
    private func echo(on socket: AsyncSocket) async throws {
        counter.add(isResumed: socket.tlsSession?.isResumed ?? false)
        for try await line in socket.lines(maxLength: 100_000) { try await socket.writeLine("\(getpid()) \(line)") }
    }

    static func main() async {
        let arguments = CommandLine.arguments
        guard arguments.count == 5, let port = Int(arguments[3]), let startTLSPort = Int(arguments[4]) else {
            log("usage: fleet-server SHARED-FOLDER OWN-FOLDER PORT STARTTLS-PORT")
            exit(EX_USAGE)
        }
        do {
            let server = try await FleetServer(sharedFolder: arguments[1], ownFolder: arguments[2])
            try await server.run(ownFolder: arguments[2], port: port, startTLSPort: startTLSPort)
        } catch {
            log("failed: \(error)")
            exit(EXIT_FAILURE)
        }
    }
}

/// Prints a line without buffering, even to a pipe.
func log(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}
