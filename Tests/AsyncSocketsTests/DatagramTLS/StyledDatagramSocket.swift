import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport

/// A connected UDP socket with the same methods for both styles.
struct StyledDatagramSocket: Sendable {
    let socket: AsyncUDPSocket
    let recorder: DatagramRecorder?
    private let trust: (@Sendable (PeerTrust) async -> Bool)?

    /// - Parameter trust: Evaluates the peer's certificate if the settings require it.
    init(_ style: Style, trust: (@Sendable (PeerTrust) async -> Bool)? = nil) throws {
        self.trust = trust
        switch style {
        case .task: (socket, recorder) = (try AsyncUDPSocket.bound(), nil)
        case .delegate:
            let recorder = DatagramRecorder(trust: trust)
            (socket, self.recorder) = (try AsyncUDPSocket.bound("127.0.0.1", AsyncUDPSocket(inlineDelegate: recorder)), recorder)
        }
    }

    /// Returns two connected sockets.
    static func pair(
        _ style: Style, clientTrust: (@Sendable (PeerTrust) async -> Bool)? = nil,
        serverTrust: (@Sendable (PeerTrust) async -> Bool)? = nil
    ) async throws -> (client: StyledDatagramSocket, server: StyledDatagramSocket) {
        let (client, server) = (try Self(style, trust: clientTrust), try Self(style, trust: serverTrust))
        try await client.connect(to: server.socket.address)
        try await server.connect(to: client.socket.address)
        return (client, server)
    }

    func connect(to address: SocketEndpoint) async throws {
        guard let recorder else { return try await socket.connect(to: address) }
        try socket.connect(toAddress: address)
        _ = try await recorder.connected()
    }

    func startDTLS(_ settings: TLSSettings<some TLSRole.Side>) async throws {
        guard let recorder else {
            if let trust {
                try await socket.startDTLS(settings: settings, trust: { await trust($0) })
            } else {
                try await socket.startDTLS(settings: settings)
            }
            return
        }
        try socket.beginDTLS(settings: settings)
        try await Self.secured(recorder)
    }

    /// Waits for the end of a delegate's upgrade.
    static func secured(_ recorder: DatagramRecorder) async throws {
        try await recorder.first { told -> Result<Void, any Error>? in
            switch told {
            case .secured: .success(())
            case .closed(let error): .failure(error ?? AsyncSocketError.plain)
            default: nil
            }
        }.get()
    }

    func send(_ text: String) async throws {
        guard let recorder else { return try await socket.send(Data(text.utf8)) }
        socket.send(Data(text.utf8), withTimeout: -1, tag: 7)
        try await recorder.first { told -> Result<Void, any Error>? in
            switch told {
            case .sent: .success(())
            case .notSent(_, let error): .failure(error)
            default: nil
            }
        }.get()
    }

    func receive() async throws -> String {
        guard let recorder else { return String(decoding: try await socket.receive().data, as: UTF8.self) }
        try socket.receiveOnce()
        return String(
            decoding: try await recorder.first { told -> Result<Data, any Error>? in
                switch told {
                case .received(let datagram): .success(datagram.data)
                case .closed(let error): .failure(error ?? AsyncSocketError.plain)
                default: nil
                }
            }.get(), as: UTF8.self)
    }

    /// Waits for the end of the connection and returns its error.
    func end() async throws -> AsyncSocketError? {
        if let recorder { return try await recorder.closed() }
        do {
            _ = try await socket.receive()
        } catch {
            return error as? AsyncSocketError
        }
        throw Unexpected(description: "something came")
    }
}

extension AsyncSocketError {
    /// Represents an end without an error.
    fileprivate static var plain: AsyncSocketError {
        AsyncSocketError(.closed, fault: .caller, operation: .close, message: "it closed without an error")
    }
}

/// Upgrades both ends concurrently.
func secure(
    _ client: StyledDatagramSocket, _ clientSettings: TLSClientSettings, _ server: StyledDatagramSocket,
    _ serverSettings: TLSServerSettings
) async throws {
    async let first: Void = client.startDTLS(clientSettings)
    async let second: Void = server.startDTLS(serverSettings)
    _ = try await (first, second)
}
