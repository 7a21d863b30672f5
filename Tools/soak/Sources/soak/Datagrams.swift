import AsyncSockets
import Foundation

/// Exchanges datagrams over DTLS. Each contains a header and the bytes of a pattern. A datagram without a
/// reply is sent again, because the kernel drops datagrams when a buffer is full.
enum Datagrams {
    private static let limit = Duration.seconds(Tally.limit)
    /// How long peers may be silent: longer than the longest pause.
    static let idleTimeout = Duration.seconds(30)

    // MARK: - Server

    static func serve(_ listener: DatagramListener, _ tally: Tally) async throws {
        try await listener.run(onError: { _, _ in }) { socket in
            tally.opened(hasDescriptor: false)
            tally.secured(socket.tlsSession)
            do {
                for try await datagram in socket.datagrams { try await reply(to: datagram.data, on: socket, tally) }
            } catch {
                // A peer that leaves without close_notify is noticed by the time limit.
                let code = (error as? AsyncSocketError)?.code
                if code != .idleTimeout, code != .closedByPeer { tally.fault("DTLS server: \(error)") }
            }
            tally.closed(hasDescriptor: false)
        }
    }

    private static func reply(to data: Data, on socket: AsyncUDPSocket, _ tally: Tally) async throws {
        guard data.count >= Exchange.headerLength, let exchange = Exchange(Data(data.prefix(Exchange.headerLength))),
            data.count == Exchange.headerLength + exchange.requestLength,
            exchange.request.matches(Data(data.dropFirst(Exchange.headerLength)), at: 0)
        else { return tally.fault("DTLS server: wrong bytes in a datagram of \(data.count)") }
        try await socket.send(exchange.header + tally.planted(exchange.reply.bytes(0..<exchange.replyLength)))
        tally.exchanged(exchange)
    }

    // MARK: - Client

    static func runClient(
        _ route: Route, _ settings: TLSClientSettings, _ tally: Tally, pause: Duration, choices: Choices
    ) async {
        var choices = choices
        while !tally.isStopping {
            tally.opened()
            do {
                try await AsyncUDPSocket.withConnection(to: "127.0.0.1", port: route.port) { socket in
                    try await socket.startDTLS(settings: settings)
                    tally.secured(socket.tlsSession)
                    for _ in 0..<Int.random(in: 1...12, using: &choices) where !tally.isStopping {
                        try await tally.sleep(min(choices.pause(mean: pause), .seconds(20)))
                        try await exchange(on: socket, tally, &choices)
                    }
                    // Some leave without close_notify, so that the server has to notice it.
                    if choices.chance(10) { socket.dissolveAssociation() }
                }
            } catch {
                tally.fault("DTLS client: \(error)")
            }
            tally.closed()
        }
    }

    private static func exchange(on socket: AsyncUDPSocket, _ tally: Tally, _ choices: inout Choices) async throws {
        var exchange = Exchange(&choices, canHalfClose: false)
        (exchange.end, exchange.requestLength, exchange.replyLength) = (.none, 1 + exchange.requestLength % 1_200, 1 + exchange.replyLength % 1_200)
        let expected = exchange.header + exchange.reply.bytes(0..<exchange.replyLength)
        let request = exchange.header + tally.planted(exchange.request.bytes(0..<exchange.requestLength))
        for _ in 0..<20 {
            try await socket.send(request, timeout: limit)
            do {
                // A reply to an earlier attempt may arrive first.
                while true {
                    let reply = try await socket.receive(timeout: .seconds(3)).data
                    if reply == expected { return tally.exchanged(exchange) }
                    if reply.prefix(Exchange.headerLength) == exchange.header { return tally.fault("DTLS client: wrong bytes in \(exchange)") }
                }
            } catch let error as AsyncSocketError where error.code == .readTimeout {
                tally.cancelled()
            }
        }
        tally.fault("DTLS client: no reply to \(exchange)")
    }
}
