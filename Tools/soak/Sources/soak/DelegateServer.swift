import AsyncSockets
import Foundation
import Synchronization

/// Accepts connections, and gives each a delegate.
final class DelegateServer: AsyncSocketDelegate, Sendable {
    let settings: TLSServerSettings?
    let isStartTLS: Bool
    /// Delivers the events, or `nil` for delegates on the event loop.
    let queue: DispatchQueue?
    let tally: Tally
    /// Sockets do not retain their delegates.
    private let connections = Mutex<[ObjectIdentifier: ServedConnection]>([:])

    init(_ settings: TLSServerSettings?, isStartTLS: Bool, queue: DispatchQueue?, _ tally: Tally) {
        (self.settings, self.isStartTLS, self.queue, self.tally) = (settings, isStartTLS, queue, tally)
    }

    func socket(_ listener: AsyncSocket, didAcceptNewSocket socket: AsyncSocket) {
        let connection = ServedConnection(self, socket)
        connections.withLock { $0[ObjectIdentifier(socket)] = connection }
        tally.opened()
        if let queue { socket.setDelegate(connection, delegateQueue: queue) } else { socket.setInlineDelegate(connection) }
        connection.begin()
    }

    fileprivate func remove(_ socket: AsyncSocket) {
        _ = connections.withLock { $0.removeValue(forKey: ObjectIdentifier(socket)) }
        tally.closed()
    }
}

/// A connection of a server with delegates.
final class ServedConnection: AsyncSocketDelegate, @unchecked Sendable {
    // Unchecked: after `begin`, the properties are used only in the delegate's methods, which do not overlap.
    private let server: DelegateServer
    private let socket: AsyncSocket
    private var isSecured: Bool
    private var exchange: Exchange?
    private var count = 0
    private var isEnding = false

    private enum Tag: Int {
        case header, request, end, reply
    }

    init(_ server: DelegateServer, _ socket: AsyncSocket) {
        (self.server, self.socket) = (server, socket)
        isSecured = server.settings == nil
    }

    func begin() {
        socket.autoDisconnectOnClosedReadStream = false
        do {
            if let settings = server.settings {
                if server.isStartTLS {
                    try socket.beginAcceptingStartTLS(as: .smtp(greeting: "soak"), settings: settings)
                } else {
                    try socket.beginTLS(settings: settings)
                }
            }
        } catch {
            fault("\(error)")
            socket.disconnect()
        }
        read(Exchange.headerLength, .header)
    }

    private func fault(_ text: String) { server.tally.fault("server with delegates, \(exchange.debugDescription): \(text)") }

    private func read(_ length: Int, _ tag: Tag) {
        socket.readData(toLength: length, withTimeout: Tally.limit, tag: tag.rawValue)
    }

    func socketDidSecure(_ socket: AsyncSocket) {
        isSecured = true
        server.tally.secured(socket.tlsSession)
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        switch Tag(rawValue: tag) {
        case .header:
            guard let next = Exchange(data) else { return fault("no header: \(Array(data))") }
            (exchange, count) = (next, 0)
            receive(next)
        case .request:
            guard let exchange else { return fault("a request without a header") }
            if !exchange.request.matches(data, at: count) { fault("wrong bytes at \(count)") }
            count += data.count
            receive(exchange)
        case .end:
            guard let exchange else { return fault("an end without a header") }
            if !data.isEmpty { fault("\(data.count) bytes after the end") }
            reply(to: exchange)
        case .reply, nil: fault("a read with the tag \(tag)")
        }
    }

    private func receive(_ exchange: Exchange) {
        if count < exchange.requestLength {
            read(min(65_536, exchange.requestLength - count), .request)
        } else if exchange.end == .halfClose {
            isEnding = true
            socket.readDataToEnd(withTimeout: Tally.limit, tag: Tag.end.rawValue)
        } else {
            reply(to: exchange)
        }
    }

    private func reply(to exchange: Exchange) {
        let bytes = server.tally.planted(exchange.reply.bytes(0..<exchange.sentLength))
        if exchange.end == .none || exchange.end == .cut { read(Exchange.headerLength, .header) }
        socket.write(bytes, withTimeout: Tally.limit, tag: Tag.reply.rawValue)
        if exchange.end == .halfClose || exchange.end == .close {
            isEnding = true
            socket.disconnectAfterWriting()
        }
    }

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
        guard let exchange else { return fault("a write without a header") }
        server.tally.exchanged(exchange)
        if exchange.end == .reset { socket.disconnectWithReset() }
        // Until the next header, the client may end the connection.
        if exchange.end == .none { self.exchange = nil }
    }

    func socketDidCloseReadStream(_ socket: AsyncSocket) {
        if isEnding { return }
        if let exchange, exchange.end != .cut { fault("the client closed the connection during an exchange") }
        socket.disconnect()
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        if let error, !allows(error) { fault("\(error)") }
        server.remove(socket)
    }

    private func allows(_ error: AsyncSocketError) -> Bool {
        if !isSecured { return error.isEnd || error.code == .startTLSFailed || error.tls?.code == .closedDuringHandshake }
        guard let exchange else { return error.isReset }
        return exchange.end == .cut && error.isEnd || isEnding && error.code == .closedByPeer
    }
}
