import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport

/// A proxy with a client at the far end of its tunnel. It sends the client's first bytes in the same segment
/// as its own reply.
struct Splice {
    /// The socket at the far end of the tunnel.
    let client: AsyncSocket
    let atClient: Recorder
    private let far: AsyncSocket
    private let atFar: Recorder
    private let listener: AsyncSocket
    private let atListener: Recorder
    private let link: Link

    var proxyPort: UInt16 { listener.localPort }

    static func make() async throws -> Splice {
        let link = try await Link.make()
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        return Splice(
            client: link.client, atClient: link.atClient, far: link.server, atFar: link.atServer, listener: listener,
            atListener: atListener, link: link)
    }

    /// Serves the connection that requests a tunnel, and then copies everything in both directions.
    func join(_ kind: ProxyScript) async throws {
        let near = try await atListener.accepted()
        let atNear = Recorder()
        near.changeDelegate(to: atNear)
        if kind == .socks5 {
            near.readData(toLength: 3, withTimeout: .patient, tag: 0)
            _ = try await atNear.readData()
            near.write(Data([5, 0]), withTimeout: .patient, tag: 0)
            near.readData(toLength: 19, withTimeout: .patient, tag: 0)
        } else {
            near.readData(to: Data("\r\n\r\n"), withTimeout: .patient, tag: 0)
        }
        _ = try await atNear.readData()
        far.readData(withTimeout: .patient, tag: 0)
        near.write(Data(kind.success) + (try await atFar.readData()), withTimeout: .patient, tag: 0)
        for (source, recorder, target) in [(near, atNear, far), (far, atFar, near)] {
            // Ends with the connection it reads from.
            Task { while true { try await Self.copy(from: source, recorder, to: target) } }
        }
    }

    private static func copy(from source: AsyncSocket, _ recorder: Recorder, to target: AsyncSocket) async throws {
        source.readData(withTimeout: .patient, tag: 0)
        target.write(try await recorder.readData(), withTimeout: .patient, tag: 0)
    }
}
