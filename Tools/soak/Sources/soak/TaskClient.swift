import AsyncSockets
import Foundation

/// Opens one connection after another, in a task.
struct TaskClient {
    let route: Route
    let settings: TLSClientSettings
    let tally: Tally
    let pause: Duration
    var choices: Choices
    /// The current exchange.
    private var exchange: Exchange?
    /// Whether the client closes the connection intentionally.
    private var isLeaving = false
    private static let limit = Duration.seconds(Tally.limit)

    init(_ route: Route, _ settings: TLSClientSettings, _ tally: Tally, pause: Duration, seed: UInt64) {
        (self.route, self.settings, self.tally, self.pause) = (route, settings, tally, pause)
        choices = Choices(state: seed)
    }

    mutating func run() async {
        while !tally.isStopping {
            (exchange, isLeaving) = (nil, false)
            tally.opened()
            do {
                try await converse()
            } catch {
                if !allows(error) {
                    tally.fault("client with tasks, \(route), \(exchange.debugDescription): \(error)")
                } else if let exchange {
                    tally.exchanged(exchange)
                }
            }
            tally.closed()
        }
    }

    private func allows(_ error: any Error) -> Bool {
        if isLeaving || exchange?.end == .cut { return true }
        guard let error = error as? AsyncSocketError else { return false }
        return exchange?.end == .reset && (error.isReset || error.code == .truncated)
    }

    private mutating func converse() async throws {
        try await AsyncSocket.withConnection(to: "127.0.0.1", port: route.port) { socket in
            if route.kind != .plain { try await secure(socket) }
            while !tally.isStopping, !isLeaving {
                try await wait(socket)
                if choices.chance(3) { return choices.chance(50) ? socket.disconnectWithReset() : () }
                try await exchange(on: socket)
                if exchange?.end != Exchange.End.none { return }
            }
        }
    }

    private mutating func secure(_ socket: AsyncSocket) async throws {
        let (route, settings) = (route, settings)
        let upgrade: @Sendable () async throws -> Void = {
            _ =
                route.kind == .startTLS
                ? try await socket.startTLS(as: .smtp(name: "soak"), settings: settings)
                : try await socket.startTLS(settings: settings)
        }
        if choices.chance(3) {
            isLeaving = true
            try await cancelling(upgrade)
        } else {
            try await upgrade()
            tally.secured(socket.tlsSession)
        }
    }

    /// Waits, half of the time in a read that is cancelled afterwards, which must not lose bytes.
    private mutating func wait(_ socket: AsyncSocket) async throws {
        let time = choices.pause(mean: pause)
        guard choices.chance(50) else { return try await tally.sleep(time) }
        let read = Task { try await socket.read(maxLength: 1) }
        try await tally.sleep(time)
        read.cancel()
        do {
            let data = try await read.value
            throw AsyncSocketError(
                .system, fault: .peer, operation: .read, message: "read \(data?.count ?? 0) bytes without a request")
        } catch is CancellationError {
            tally.cancelled()
        }
    }

    private mutating func exchange(on socket: AsyncSocket) async throws {
        let canHalfClose = route.kind == .plain || socket.tlsSession?.protocolVersion == .tls13
        let exchange = Exchange(&choices, canHalfClose: canHalfClose)
        self.exchange = exchange
        let isInterrupted = choices.chance(20)
        let (tally, choices) = (tally, choices)
        if exchange.end == .cut {
            try await cancelling { try await Self.perform(exchange, on: socket, tally, choices, isInterrupted) }
            if self.choices.chance(50) { socket.disconnectWithReset() }
        } else {
            try await Self.perform(exchange, on: socket, tally, choices, isInterrupted)
        }
        tally.exchanged(exchange)
    }

    private static func perform(
        _ exchange: Exchange, on socket: AsyncSocket, _ tally: Tally, _ choices: Choices, _ isInterrupted: Bool
    ) async throws {
        let bytes = tally.planted(exchange.request.bytes(0..<exchange.requestLength))
        try await socket.write(exchange.header + bytes, timeout: limit)
        if exchange.end == .halfClose { socket.closeWriteStream() }
        var (count, choices) = (0, choices)
        while count < exchange.replyLength {
            let length = Int.random(in: 1...min(65_536, exchange.replyLength - count), using: &choices)
            let timeout = isInterrupted && choices.chance(30) ? Duration.milliseconds(Int.random(in: 0...3, using: &choices)) : limit
            do {
                guard let data = try await socket.read(maxLength: length, timeout: timeout) else { throw AsyncSocketError.ended }
                if !exchange.reply.matches(data, at: count) { tally.fault("client with tasks: wrong bytes at \(count) of \(exchange)") }
                count += data.count
            } catch let error as AsyncSocketError where error.code == .readTimeout && timeout < limit {
                tally.cancelled()
            }
        }
        if exchange.end == .halfClose || exchange.end == .close, let data = try await socket.read(timeout: limit) {
            tally.fault("client with tasks: \(data.count) bytes after the reply")
        }
        if exchange.end == .reset { tally.fault("client with tasks: the server did not reset the connection") }
    }

    /// Performs an operation in another task, and cancels the task after a short time.
    private mutating func cancelling(_ body: @escaping @Sendable () async throws -> Void) async throws {
        let task = Task { try await body() }
        try await Task.sleep(for: .microseconds(Int.random(in: 0...20_000, using: &choices)))
        task.cancel()
        tally.cancelled()
        try await task.value
    }
}
