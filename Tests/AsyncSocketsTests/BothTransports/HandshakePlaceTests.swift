import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The handshake permits of a listener. Each handshake returns its permit, whether it succeeds or fails.
@Suite(.timeLimit(.patient)) struct HandshakePlaceTests {
    /// The course of a handshake.
    private enum Course: CaseIterable {
        case complete, untrusted, refused, cancelled
    }

    /// The listener has one permit. If a handshake kept it, the next client would be rejected.
    @Test(arguments: Transport.allCases) func everyHandshakeReturnsItsPermit(_ transport: Transport) async throws {
        switch transport {
        case .stream:
            let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: TestCertificates.server())
            listener.maximumHandshakes = 1
            try await serving(listener, { try await $0.echo() }) { _ in
                try await goThroughAll(transport, listener.localPort)
                try await eventually("all permits are free") { listener.preparation.slots.takenCount == 0 }
            }
        case .datagrams:
            let listener = try DatagramListener(
                address: .loopback(), dtls: TestCertificates.server(), idleTimeout: .patient)
            listener.maximumHandshakes = 1
            let running = Task {
                try await listener.run(onError: { _, _ in }) { socket in
                    for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
                }
            }
            try await goThroughAll(transport, listener.localPort)
            try await eventually("all peers have closed") { listener.snapshot.openCount == 0 }
            await listener.close(timeout: .zero)
            try await running.value
        }
    }

    private func goThroughAll(_ transport: Transport, _ port: UInt16) async throws {
        for course in Course.allCases + Course.allCases {
            let client = UpgradeEnd(transport, hasDelegate: false)
            try await client.connect(toPort: port)
            try await shakeHands(client, course)
            client.close()
        }
        let last = UpgradeEnd(transport, hasDelegate: false)
        try await last.connect(toPort: port)
        try await shakeHands(last, .complete)
        last.close()
    }

    private func shakeHands(_ client: UpgradeEnd, _ course: Course) async throws {
        var settings = try TestCertificates.client()
        switch course {
        case .complete:
            try await client.upgrade(settings)
            try await client.send("hello")
            #expect(try await client.receive(5) == "hello")
        case .untrusted:
            settings.trustRoots = try TestCertificates.stranger.roots
            #expect(await outcome { try await client.upgrade(settings) } == .failed(.tls))
        case .refused:
            #expect(await outcome { try await client.upgrade(settings) { _ in false } } == .failed(.tls))
        case .cancelled:
            let isAsked = try TestSignal()
            let upgrade = Task { [settings] in
                try await client.upgrade(settings) { _ in
                    isAsked.fire()
                    try await waitUntilCancelled()
                    return false
                }
            }
            try await isAsked.wait()
            upgrade.cancel()
            #expect(await upgrade.outcome != .served)
        }
    }
}
