internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Foundation
internal import SocketBuffers
internal import SocketTestSupport

/// A TLS server with default settings for scanners. Prints its port, and serves until the end of its input.
/// Its certificate complies with Mozilla's profile.
enum TLSServerProbe {
    private final class Server: AsyncSocketDelegate, Sendable {
        private let settings: TLSServerSettings
        private let children = Locked<[ObjectIdentifier: AsyncSocket]>([:])

        init(_ settings: TLSServerSettings) {
            self.settings = settings
        }

        func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
            children.withLock { $0[ObjectIdentifier(newSocket)] = newSocket }
            // An error closes the connection, so nothing follows in plaintext.
            do { try newSocket.beginTLS(settings: settings) } catch { print("startTLS: \(error)") }
            newSocket.readData(withTimeout: .patient, tag: 0)
        }
        func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
            socket.readData(withTimeout: .patient, tag: 0)
        }
        func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
            // Released outside the lock.
            _ = children.withLock { $0.removeValue(forKey: ObjectIdentifier(socket)) }
        }
    }

    /// - Parameters:
    ///   - keyType: "ecdsa" or "rsa".
    ///   - policy: The name of a preset.
    static func run(_ keyType: String, policy: String) throws {
        let kind: CertificateAuthority.KeyType = keyType == "rsa" ? .rsa2048 : .p256
        let issued = try CertificateAuthority().issue(.server(names: ["localhost", "127.0.0.1"]), keyType: kind)
        var settings = TLSSettings.server(identity: try issued.identity())
        switch policy {
        case "modern": settings.policy = .modern
        case "compatible": settings.policy = .compatible
        default: break
        }
        try serve(settings)
    }

    /// The same with a key given by a URI.
    ///
    /// - Parameter arguments: The file of the certificate, the URI, and the PIN.
    static func run(token arguments: [String]) throws {
        guard arguments.count == 3 else { throw ProbeFailure(description: "say certificate, URI and PIN") }
        let chain = try TLSCertificate.certificates(file: arguments[0])
        try serve(.server(identity: TLSIdentity(certificateChain: chain, privateKeyURI: arguments[1], passphrase: arguments[2])))
    }

    private static func serve(_ settings: TLSServerSettings) throws {
        let server = Server(settings)
        let listener = AsyncSocket(inlineDelegate: server)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        print(listener.localPort)
        fflush(nil)
        while readLine() != nil {}
        withExtendedLifetime((listener, server)) {}
    }
}
