internal import AsyncSockets
internal import Foundation

/// Sends datagrams from a delegate method, so that the socket queues them and sends them in batches. Half of
/// them have the same size, so that they can be sent as runs.
enum DatagramExchange {
    private static let payloads = (0..<80).map { Data(repeating: UInt8($0), count: $0 < 40 ? 200 : 100 + $0) }

    private final class Party: AsyncUDPSocketDelegate, Sendable {
        /// The datagrams that the client receives, and the errors of both sockets.
        private let outcomes: Mailbox<Result<Datagram, AsyncSocketError>>
        private let isServer: Bool

        init(_ outcomes: Mailbox<Result<Datagram, AsyncSocketError>>, isServer: Bool) {
            (self.outcomes, self.isServer) = (outcomes, isServer)
        }

        func udpSocket(_ socket: AsyncUDPSocket, didReceive datagram: Datagram, withFilterContext context: (any Sendable)?) {
            guard isServer else { return outcomes.put(.success(datagram)) }
            for (tag, payload) in payloads.enumerated() {
                socket.send(payload, inReplyTo: datagram, withTimeout: -1, tag: tag)
            }
        }

        func udpSocket(_ socket: AsyncUDPSocket, didNotSendDataWithTag tag: Int, dueToError error: AsyncSocketError) {
            outcomes.put(.failure(error))
        }

        func udpSocketDidClose(_ socket: AsyncUDPSocket, withError error: AsyncSocketError?) {
            if let error { outcomes.put(.failure(error)) }
        }
    }

    static func run() throws {
        let outcomes = Mailbox<Result<Datagram, AsyncSocketError>>()
        let delegates = [true, false].map { Party(outcomes, isServer: $0) }
        let sockets = delegates.map { AsyncUDPSocket(inlineDelegate: $0) }
        for socket in sockets {
            try socket.bind(toPort: 0)
            try socket.beginReceiving()
        }
        sockets[1].send(Data("all".utf8), toHost: "127.0.0.1", port: sockets[0].localPort, withTimeout: -1, tag: 0)
        for payload in payloads {
            let datagram = try outcomes.next().get()
            guard datagram.data == payload else { throw ProbeFailure(description: "another datagram: \(datagram)") }
        }
        withExtendedLifetime((sockets, delegates)) {}
    }
}
