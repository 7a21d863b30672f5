import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The last flight of a listener's handshake is lost. The peer's socket is secure, and the client
/// retransmits.
@Suite(.timeLimit(.patient)) struct LastFlightTests {
    /// The program's use of the peer's socket until the client is secure.
    enum Program: CaseIterable, Sendable { case nothing, waits, sends, hasDelegate }

    /// Drops the server's first flight with ChangeCipherSpec. After that, each of the client's flights is
    /// sent in one datagram, as some programs do.
    private final class Road: Sendable {
        private struct State {
            var lostCount = 0
            var flight: [UInt8] = []
        }

        private let state = Locked(State())

        var lostCount: Int { state.withLock { $0.lostCount } }

        func treat(_ datagram: [UInt8], _ isFromClient: Bool) -> [[UInt8]] {
            state.withLock { state in
                guard isFromClient else {
                    guard state.lostCount == 0, Self.kinds(of: datagram).contains(20) else { return [datagram] }
                    state.lostCount = 1
                    return []
                }
                guard state.lostCount > 0 else { return [datagram] }
                state.flight += datagram
                // Finished or data, whichever is encrypted first.
                guard datagram.count > 4, datagram[4] == 1 else { return [] }
                defer { state.flight = [] }
                return [state.flight]
            }
        }

        /// Returns the types of the records in a datagram.
        private static func kinds(of datagram: [UInt8]) -> [UInt8] {
            var kinds: [UInt8] = []
            var rest = datagram[...]
            while let kind = rest.first, rest.count >= 13 {
                kinds.append(kind)
                let bytes = Array(rest.prefix(13))
                rest = rest.dropFirst(13 + Int(bytes[11]) << 8 + Int(bytes[12]))
            }
            return kinds
        }
    }

    @Test(arguments: Program.allCases) func theClientGetsTheLastFlightWhenItAsksAgain(_ program: Program) async throws {
        let listener = try DatagramListener(address: .loopback(), dtls: TestCertificates.server())
        let (hold, end) = AsyncStream<Void>.makeStream()
        let recorder = DatagramRecorder { _, _ in }
        let serving = Task {
            try await listener.run { socket in
                switch program {
                case .nothing: for await _ in hold {}
                case .waits: break
                case .sends: for number in 0..<3 { try await socket.send(Data("early \(number)".utf8)) }
                case .hasDelegate:
                    socket.setInlineDelegate(recorder)
                    for await _ in hold {}
                }
                for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
            }
        }
        let road = Road()
        let relay = try DatagramRelay(to: listener.localPort) { road.treat($0, $1) }
        defer { relay.close() }
        let client = AsyncUDPSocket()
        client.firstRetransmission = .milliseconds(50)
        try await client.connect(to: "127.0.0.1", port: relay.port)
        try await client.startDTLS(settings: TestCertificates.client())
        #expect(road.lostCount == 1)
        end.finish()
        try await client.send(Data("hello".utf8))
        // Data sent before the client was secure may have arrived too early and been dropped.
        var text = ""
        while text != "hello" {
            text = String(decoding: try await client.receive().data, as: UTF8.self)
            #expect(text == "hello" || (text.hasPrefix("early") && program == .sends))
        }
        client.disconnect()
        await listener.close(timeout: .zero)
        try await serving.value
    }
}
