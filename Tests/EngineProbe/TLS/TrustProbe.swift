internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Dispatch
internal import Foundation
internal import Glibc
internal import SocketTestSupport

/// Measures the processor time of a server whose delegate never decides while the client keeps sending, until
/// the trust timeout.
enum TrustProbe {
    private static let pause = 1.0

    private enum Told: Sendable {
        case asked
        case secured
        case wrote
        case disconnected(AsyncSocketError?)
    }

    private final class Party: AsyncSocketDelegate, @unchecked Sendable {
        // Unchecked: `child` is set once, on the loop, before any event is delivered.
        let mailbox = Mailbox<Told>()
        let settings: TLSServerSettings?
        var child: AsyncSocket?

        init(_ settings: TLSServerSettings?) {
            self.settings = settings
        }

        func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
            child = newSocket
            // An error closes the connection, so nothing follows in plaintext.
            do { if let settings { try newSocket.beginTLS(settings: settings) } } catch { print("startTLS: \(error)") }
        }
        func socketDidSecure(_ socket: AsyncSocket) { mailbox.put(.secured) }
        func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) { mailbox.put(.wrote) }
        func socket(_ socket: AsyncSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void) {
            mailbox.put(.asked)
        }
        func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
            mailbox.put(.disconnected(error))
        }
    }

    static func run() throws {
        let authority = try CertificateAuthority()
        var server = TLSSettings.server(identity: try authority.issue(.server(names: ["localhost"])).identity())
        server.clients = .certificates(.required)
        server.trustRoots = try authority.roots
        server.trustEvaluation = .delegate
        server.trustTimeout = .seconds(pause)
        var settings = TLSSettings.client(serverName: "localhost")
        settings.trustRoots = try authority.roots
        settings.identity = try authority.issue(.client(commonName: "alice")).identity()
        settings.minimumVersion = .tls13

        let atServer = Party(server)
        let listener = AsyncSocket(inlineDelegate: atServer)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let atClient = Party(nil)
        let client = AsyncSocket(inlineDelegate: atClient)
        try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        try client.beginTLS(settings: settings)
        // The client is secure before the server has decided, as RFC 8446 allows, and sends data.
        guard case .secured = try atClient.mailbox.next() else { throw ProbeFailure(description: "not secure") }
        guard case .asked = try atServer.mailbox.next() else { throw ProbeFailure(description: "not asked") }
        client.write(Data(count: 100_000), withTimeout: .patient, tag: 0)
        guard case .wrote = try atClient.mailbox.next() else { throw ProbeFailure(description: "not written") }
        let before = processorSeconds()
        guard case .disconnected(let error) = try atServer.mailbox.next(), error?.code == .trustTimeout else {
            throw ProbeFailure(description: "the verdict was not overdue")
        }
        let used = processorSeconds() - before
        guard used < pause / 4 else { throw ProbeFailure(description: "\(used) s of processor time in a pause of \(pause) s") }
        print("\(used) s of processor time in a pause of \(pause) s")
    }

    private static func processorSeconds() -> Double {
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        let times = [usage.ru_utime, usage.ru_stime]
        return times.reduce(0) { $0 + Double($1.tv_sec) + Double($1.tv_usec) / 1_000_000 }
    }
}
