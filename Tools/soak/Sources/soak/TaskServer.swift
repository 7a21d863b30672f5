import AsyncSockets
import Foundation

/// Serves the connections of a listener, each in its task.
struct TaskServer {
    let listener: SocketListener
    let startTLS: TLSServerSettings?
    let tally: Tally
    private static let limit = Duration.seconds(Tally.limit)

    func run() async throws {
        try await listener.run(onError: { _, _ in }) { socket in
            tally.opened()
            var phase: Phase = .securing
            do {
                if let startTLS {
                    try await socket.acceptStartTLS(as: .smtp(greeting: "soak"), settings: startTLS)
                }
                if socket.isSecure { tally.secured(socket.tlsSession) }
                try await serve(socket, &phase)
            } catch {
                if !phase.allows(error) { tally.fault("server with tasks, \(phase): \(error)") }
            }
            if tally.plant == .connection, tally.live % 100 == 0 { try? await Task.sleep(for: .seconds(36_000)) }
            tally.closed()
        }
    }

    /// Where a connection is, which decides what may end it.
    enum Phase {
        case securing
        case waiting(after: Exchange.End)
        case exchanging(Exchange.End)

        func allows(_ error: any Error) -> Bool {
            guard let error = error as? AsyncSocketError else { return false }
            return switch self {
            // The peer may leave at any time.
            case .securing: error.isEnd || error.code == .startTLSFailed || error.tls?.code == .closedDuringHandshake
            case .waiting(let end): error.isReset || end == .cut && error.isEnd
            case .exchanging(let end): end == .cut && error.isEnd
            }
        }
    }

    private func serve(_ socket: AsyncSocket, _ phase: inout Phase) async throws {
        // The client may leave right after the handshake.
        phase = .waiting(after: .cut)
        while true {
            guard var header = try await socket.read(maxLength: Exchange.headerLength, timeout: Self.limit) else { return }
            // The first byte tells whether the rest may be missing.
            phase = .exchanging(Exchange.End(rawValue: header.first ?? 0) ?? .none)
            if header.count < Exchange.headerLength {
                header += try await socket.read(exactly: Exchange.headerLength - header.count, timeout: Self.limit)
            }
            guard let exchange = Exchange(header) else { return tally.fault("server with tasks: no header: \(Array(header))") }
            try await receive(exchange, from: socket)
            try await reply(to: exchange, on: socket)
            tally.exchanged(exchange)
            phase = .waiting(after: exchange.end)
            switch exchange.end {
            case .none, .cut: break
            case .reset: return socket.disconnectWithReset()
            case .halfClose, .close: return
            }
        }
    }

    private func receive(_ exchange: Exchange, from socket: AsyncSocket) async throws {
        var count = 0
        while count < exchange.requestLength {
            let length = min(65_536, exchange.requestLength - count)
            guard let data = try await socket.read(maxLength: length, timeout: Self.limit) else { throw AsyncSocketError.ended }
            if !exchange.request.matches(data, at: count) {
                tally.fault("server with tasks: wrong bytes at \(count) of \(exchange)")
            }
            count += data.count
        }
        if exchange.end == .halfClose, let data = try await socket.read(timeout: Self.limit) {
            tally.fault("server with tasks: \(data.count) bytes after the end")
        }
    }

    private func reply(to exchange: Exchange, on socket: AsyncSocket) async throws {
        let bytes = tally.planted(exchange.reply.bytes(0..<exchange.sentLength))
        try await socket.write(bytes, timeout: Self.limit)
    }
}

extension AsyncSocketError {
    /// The peer closed its side too early.
    static let ended = AsyncSocketError(
        .closedByPeer, fault: .peer, operation: .read, message: "the peer closed the connection during an exchange")
}
