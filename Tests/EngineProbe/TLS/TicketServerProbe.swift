internal import AsyncSockets
internal import Foundation

/// A TLS server whose tickets are accepted by other processes. Prints its port, and sends each client its
/// process ID and whether the session was resumed.
enum TicketServerProbe {
    /// - Parameter files: A certificate, its key, and the ticket keys.
    static func run(_ files: [String]) throws {
        guard files.count == 3 else { throw ProbeFailure(description: "name three files") }
        var settings = TLSSettings.server(
            identity: try TLSIdentity(certificateFile: files[0], privateKeyFile: files[1]))
        settings.sessionTickets = .issued(1, keys: try TLSTicketKeyFile(path: files[2]))
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
        print(listener.localPort)
        fflush(nil)
        Task {
            try await listener.run { socket in
                try await socket.write("\(getpid()) \(socket.tlsSession?.isResumed ?? false)\n")
            }
        }
        while readLine() != nil {}
        listener.beginClosing(timeout: .zero)
    }
}
