import AsyncSockets
import Foundation

/// Opens one connection after another, with a delegate.
final class DelegateClient: AsyncSocketDelegate, @unchecked Sendable {
    // Unchecked: the properties are used by the delegate's methods and by `step`, which do not overlap: both
    // run on the delegate queue or, if there is no queue, inside the socket.
    private let route: Route
    private let settings: TLSClientSettings
    private let tally: Tally
    private let mean: Duration
    private let queue: DispatchQueue?
    private let timers: DispatchQueue
    private var choices: Choices
    private var socket = AsyncSocket()
    /// How many steps have been scheduled: an older step does nothing.
    private var stepNumber = 0
    private var exchange: Exchange?
    private var count = 0
    /// Whether the client closes the connection intentionally.
    private var isLeaving = false

    private enum Tag: Int {
        case reply, end
    }

    init(_ route: Route, _ settings: TLSClientSettings, _ tally: Tally, pause: Duration, seed: UInt64, queue: DispatchQueue?, timers: DispatchQueue) {
        (self.route, self.settings, self.tally, mean, self.queue) = (route, settings, tally, pause, queue)
        self.timers = timers
        choices = Choices(state: seed)
    }

    /// Connects on the queue of the timers, where nothing else uses the properties because no socket is open.
    func connect() {
        guard !tally.isStopping else { return }
        (exchange, isLeaving, count) = (nil, false, 0)
        socket = queue.map { AsyncSocket(delegate: self, delegateQueue: $0) } ?? AsyncSocket(inlineDelegate: self)
        socket.autoDisconnectOnClosedReadStream = false
        tally.opened()
        do {
            try socket.connect(toHost: "127.0.0.1", onPort: route.port)
        } catch {
            fault("\(error)")
            tally.closed()
        }
    }

    private func fault(_ text: String) { tally.fault("client with delegates, \(route), \(exchange.debugDescription) at \(count): \(text)") }

    func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16) {
        do {
            switch route.kind {
            case .plain, .dtls: return wait()
            case .tls: try socket.beginTLS(settings: settings)
            case .startTLS: try socket.beginTLS(as: .smtp(name: "soak"), settings: settings)
            }
        } catch {
            fault("\(error)")
            socket.disconnect()
        }
        if choices.chance(3) { leave(after: .microseconds(Int.random(in: 0...10_000, using: &choices))) }
    }

    func socketDidSecure(_ socket: AsyncSocket) {
        tally.secured(socket.tlsSession)
        if !isLeaving { wait() }
    }

    private func wait() {
        let time = choices.pause(mean: mean)
        if choices.chance(3) { leave(after: time) } else { schedule(time) { $0.step() } }
    }

    /// Ends the connection after a time, with or without a reset.
    private func leave(after time: Duration) {
        isLeaving = true
        let resets = choices.chance(50)
        schedule(time) { client in
            client.tally.cancelled()
            if resets { client.socket.disconnectWithReset() } else { client.socket.disconnect() }
        }
    }

    /// Calls the closure where the delegate is called.
    private func schedule(_ time: Duration, _ body: @escaping @Sendable (DelegateClient) -> Void) {
        stepNumber += 1
        let number = stepNumber
        let call: @Sendable () -> Void = { [self] in if number == stepNumber { body(self) } }
        let deadline = DispatchTime.now() + (time / .seconds(1))
        if let queue { return queue.asyncAfter(deadline: deadline, execute: call) }
        let socket = socket
        timers.asyncAfter(deadline: deadline) { socket.perform { if $0 != nil { call() } } }
    }

    private func step() {
        guard !tally.isStopping else {
            isLeaving = true
            return socket.disconnect()
        }
        let canHalfClose = route.kind == .plain || socket.tlsSession?.protocolVersion == .tls13
        let next = Exchange(&choices, canHalfClose: canHalfClose)
        (exchange, count) = (next, 0)
        let bytes = tally.planted(next.request.bytes(0..<next.requestLength))
        socket.write(next.header + bytes, withTimeout: Tally.limit, tag: 0)
        if next.end == .halfClose { socket.closeWriteStream() }
        if next.end == .cut {
            leave(after: .microseconds(Int.random(in: 0...20_000, using: &choices)))
        }
        receive(next)
    }

    private func receive(_ exchange: Exchange) {
        if count < exchange.replyLength {
            let length = Int.random(in: 1...min(65_536, exchange.replyLength - count), using: &choices)
            return socket.readData(toLength: length, withTimeout: Tally.limit, tag: Tag.reply.rawValue)
        }
        tally.exchanged(exchange)
        switch exchange.end {
        case .none:
            self.exchange = nil
            wait()
        case .cut: break
        case .reset: fault("the server did not reset the connection")
        case .halfClose, .close: socket.readDataToEnd(withTimeout: Tally.limit, tag: Tag.end.rawValue)
        }
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        guard let exchange else { return fault("\(data.count) bytes without a request") }
        if tag == Tag.end.rawValue {
            if !data.isEmpty { fault("\(data.count) bytes after the reply") }
            isLeaving = true
            return socket.disconnect()
        }
        if !exchange.reply.matches(data, at: count) { fault("wrong bytes at \(count)") }
        count += data.count
        receive(exchange)
    }

    /// Whether the reply is complete, and the server closes the connection after it.
    private var isAnswered: Bool {
        guard let exchange else { return false }
        return (exchange.end == .halfClose || exchange.end == .close) && count == exchange.replyLength
    }

    func socketDidCloseReadStream(_ socket: AsyncSocket) {
        if isLeaving { return }
        if !isAnswered { fault("the server closed the connection") }
        isLeaving = true
        socket.disconnect()
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        let isExpected =
            isLeaving || isAnswered && error?.code == .closedByPeer
            || exchange?.end == .reset && (error?.isReset == true || error?.code == .truncated)
        if !isExpected { fault(error.map { "\($0)" } ?? "disconnected without an error") }
        if let exchange, exchange.end == .reset || exchange.end == .cut && count < exchange.replyLength { tally.exchanged(exchange) }
        stepNumber += 1
        tally.closed()
        timers.async { self.connect() }
    }
}
