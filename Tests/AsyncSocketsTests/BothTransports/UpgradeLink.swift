import AsyncSocketsTesting
import Foundation
import SocketTestSupport

@testable import AsyncSockets

/// The transport of an upgrade. `startTLS` and `startDTLS` make the same promises.
enum Transport: CaseIterable, Sendable {
    case stream, datagrams

    /// The operation in its errors.
    var operation: AsyncSocketError.Operation { self == .stream ? .startTLS : .startDTLS }
}

/// One end of a connection, with the same methods for streams and datagrams. Its events go to a recorder,
/// even while a task uses it, unless it has no delegate.
enum UpgradeEnd: Sendable {
    case stream(AsyncSocket, Recorder?)
    case datagrams(AsyncUDPSocket, DatagramRecorder?)

    init(_ transport: Transport, hasDelegate: Bool = true) {
        switch transport {
        case .stream:
            let recorder = hasDelegate ? Recorder() : nil
            self = .stream(recorder.map { AsyncSocket(inlineDelegate: $0) } ?? AsyncSocket(), recorder)
        case .datagrams:
            let recorder = hasDelegate ? DatagramRecorder() : nil
            self = .datagrams(recorder.map { AsyncUDPSocket(inlineDelegate: $0) } ?? AsyncUDPSocket(), recorder)
        }
    }

    func connect(toPort port: UInt16) async throws {
        switch self {
        case .stream(let socket, _): try await socket.connect(to: "127.0.0.1", port: port)
        case .datagrams(let socket, _): try await socket.connect(to: "127.0.0.1", port: port)
        }
    }

    // MARK: - The upgrade

    /// Starts an upgrade with the delegate methods.
    func begin(_ settings: TLSSettings<some TLSRole.Side>) throws {
        switch self {
        case .stream(let socket, _): try socket.beginTLS(settings: settings)
        case .datagrams(let socket, _): try socket.beginDTLS(settings: settings)
        }
    }

    /// Upgrades in a task.
    func upgrade(
        _ settings: TLSSettings<some TLSRole.Side>, trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil
    ) async throws {
        switch (self, trust) {
        case (.stream(let socket, _), nil): try await socket.startTLS(settings: settings)
        case (.stream(let socket, _), let trust?): try await socket.startTLS(settings: settings) { try await trust($0) }
        case (.datagrams(let socket, _), nil): try await socket.startDTLS(settings: settings)
        case (.datagrams(let socket, _), let trust?): try await socket.startDTLS(settings: settings) { try await trust($0) }
        }
    }

    var isSecure: Bool {
        switch self {
        case .stream(let socket, _): socket.isSecure
        case .datagrams(let socket, _): socket.isSecure
        }
    }

    /// Whether the connection is closed.
    var isOver: Bool {
        switch self {
        case .stream(let socket, _): !socket.isConnected
        case .datagrams(let socket, _): socket.isClosed
        }
    }

    func close() {
        switch self {
        case .stream(let socket, _): socket.disconnect()
        case .datagrams(let socket, _): socket.disconnect()
        }
    }

    /// Posts a verdict with an unknown question number.
    func postStrayVerdict(_ isAccepted: Bool) {
        let news = UpgradeNews.verdict(isAccepted, of: TrustQuestionNumber())
        switch self {
        case .stream(let socket, _): socket.connection?.post(.upgrading(news))
        case .datagrams(let socket, _): socket.connection?.post(.upgrading(news))
        }
    }

    // MARK: - The delegate's events

    struct NoDelegate: Error {}

    /// Waits for the trust callback and returns its completion handler.
    func asked() async throws -> @Sendable (Bool) -> Void {
        switch self {
        case .stream(_, let recorder?): try await recorder.asked().1
        case .datagrams(_, let recorder?):
            try await recorder.first { if case .asked(_, let answer) = $0 { answer } else { nil } }
        case .stream(_, nil), .datagrams(_, nil): throw NoDelegate()
        }
    }

    func secured() async throws {
        switch self {
        case .stream(_, let recorder?): try await recorder.secured()
        case .datagrams(_, let recorder?): try await StyledDatagramSocket.secured(recorder)
        case .stream(_, nil), .datagrams(_, nil): throw NoDelegate()
        }
    }

    /// Waits for the end of the connection, and returns its error.
    func ended() async throws -> AsyncSocketError? {
        switch self {
        case .stream(_, let recorder?): try await recorder.disconnected()
        case .datagrams(_, let recorder?): try await recorder.closed()
        case .stream(_, nil), .datagrams(_, nil): throw NoDelegate()
        }
    }

    /// Whether the delegate was notified of a secure connection, or received data.
    var wasOpened: Bool {
        switch self {
        case .stream(_, let recorder):
            recorder?.unread.contains { told in
                switch told {
                case .secured, .read: true
                default: false
                }
            } ?? false
        case .datagrams(_, let recorder):
            recorder?.history.contains { told in
                switch told {
                case .secured, .received: true
                default: false
                }
            } ?? false
        }
    }

    // MARK: - Data

    func send(_ text: String) async throws {
        switch self {
        case .stream(let socket, _): try await socket.write(text)
        case .datagrams(let socket, _): try await socket.send(Data(text))
        }
    }

    /// Reads `count` bytes of a stream, or one datagram.
    func receive(_ count: Int) async throws -> String {
        switch self {
        case .stream(let socket, _): String(decoding: try await socket.read(exactly: count), as: UTF8.self)
        case .datagrams(let socket, _): String(decoding: try await socket.receive().data, as: UTF8.self)
        }
    }
}

/// Two connected ends.
struct UpgradeLink: Sendable {
    let client: UpgradeEnd
    let server: UpgradeEnd

    init(_ transport: Transport, clientHasDelegate: Bool = true) async throws {
        client = UpgradeEnd(transport, hasDelegate: clientHasDelegate)
        switch client {
        case .stream(let socket, _):
            let (listener, recorder) = (try RawSocket.listening(), Recorder())
            try await socket.connect(to: "127.0.0.1", port: listener.localPort)
            server = .stream(try AsyncSocket(adopting: listener.accepted().duplicate(), inlineDelegate: recorder), recorder)
        case .datagrams(let socket, _):
            let recorder = DatagramRecorder()
            let other = try AsyncUDPSocket.bound("127.0.0.1", AsyncUDPSocket(inlineDelegate: recorder))
            server = .datagrams(other, recorder)
            try socket.bind(toAddress: .loopback())
            try await socket.connect(to: other.address)
            try await other.connect(to: socket.address)
        }
    }

    func begin(_ clientSettings: TLSClientSettings, _ serverSettings: TLSServerSettings) throws {
        try server.begin(serverSettings)
        try client.begin(clientSettings)
    }

    /// The side whose delegate evaluates trust, and the opposite side.
    func ends(asking isClient: Bool) -> (asked: UpgradeEnd, other: UpgradeEnd) {
        isClient ? (client, server) : (server, client)
    }

    /// Settings with certificates on both sides. The delegate on one side evaluates its peer.
    static func settings(asking isClient: Bool, within timeout: Duration = .patient) throws -> (
        TLSClientSettings, TLSServerSettings
    ) {
        var (client, server) = try TestCertificates.mutual()
        if isClient {
            (client.trustEvaluation, client.trustTimeout) = (.delegate, timeout)
        } else {
            (server.trustEvaluation, server.trustTimeout) = (.delegate, timeout)
        }
        return (client.only(.tls12), server.only(.tls12))
    }
}

/// Waits until the task is cancelled, and throws `CancellationError`.
func waitUntilCancelled() async throws {
    let (stream, continuation) = AsyncStream<Void>.makeStream()
    for await _ in stream {}
    withExtendedLifetime(continuation) {}
    try Task.checkCancellation()
}
