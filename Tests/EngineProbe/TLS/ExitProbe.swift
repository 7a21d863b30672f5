internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Glibc
internal import SocketTLS

/// During exit(3) other threads may still use their connections, so OpenSSL must not have freed its locks.
enum ExitProbe {
    static func run() throws {
        // It runs last, because it is registered before OpenSSL is initialized.
        atexit {
            do {
                try ExitProbe.shakeHands(.tls13)
            } catch {
                print("failed: \(error)")
                _exit(1)
            }
        }
        try shakeHands(.tls12)
    }

    private static func shakeHands(_ version: TLSProtocolVersion) throws {
        var settings = TLSSettings.client(serverName: "localhost")
        settings.minimumVersion = version
        settings.maximumVersion = version
        let engine = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
        guard case .incomplete = engine.handshake() else { throw ProbeFailure(description: "no handshake has begun") }
    }
}
