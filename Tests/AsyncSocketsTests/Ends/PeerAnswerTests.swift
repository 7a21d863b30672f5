import AsyncSocketsTesting
import Foundation
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Unexpected or late messages from a peer.
@Suite(.timeLimit(.patient)) struct PeerAnswerTests {
    /// A client that sends nothing before it has received its tickets.
    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func ticketsLeaveThoughTheServerSaysNothing(version: TLSProtocolVersion, isDelegates: Bool) async throws {
        var server = try TestCertificates.server()
        server.sessionTickets = .issued(2)
        let store = TLSInMemorySessionStore()
        var client = try TestCertificates.client().only(version)
        client.resumption = .store(store)
        guard !isDelegates else {
            for delivery in Link.Delivery.allCases {
                let (link, store) = (try await Link.make(delivery), TLSInMemorySessionStore())
                client.resumption = .store(store)
                try await link.secure(client: client, server: server)
                link.client.readData(tag: 1)
                try await eventually("the tickets are there") { store.count > 0 }
            }
            return
        }
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: server)
        try await serving(listener, { _ = try await $0.readLine() }) { _ in
            let socket = AsyncSocket()
            try await socket.connect(to: "127.0.0.1", port: listener.localPort, tls: client)
            let read = Task.immediate { try await socket.read() }
            try await eventually("the tickets are there") { store.count > 0 }
            try await socket.write("bye\n")
            #expect(try await read.value == nil)
        }
    }

    /// A server rejects the handshake. Its alert is reported as such, not as an injection.
    @Test(arguments: [false, true]) func anAlertBeforeStartTLSIsToldAsOne(isDelegates: Bool) async throws {
        let peer = try ScriptedPeer.listening([.send(Array("220 go ahead\r\n".utf8) + [21, 3, 3, 0, 2, 2, 40]), .expectEnd])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try await socket.connect(to: "127.0.0.1", port: peer.port)
        #expect(try await socket.read(until: .lineEnd) == Data("220 go ahead\r\n"))
        var error: AsyncSocketError?
        if isDelegates {
            try socket.beginTLS(settings: TestCertificates.client())
            error = try await recorder.disconnected()
        } else {
            error = await #expect(throws: AsyncSocketError.self) {
                try await socket.startTLS(settings: TestCertificates.client())
            }
        }
        #expect(error?.code == .tls && error?.tls?.code == .peerAlert && error?.tls?.alert == .handshakeFailure)
        _ = try await peer.finish()
    }

    /// Bytes that only resemble an alert are still an injection.
    @Test func plaintextBeforeStartTLSIsNoAlert() async throws {
        for bytes in [[21, 3, 3, 0, 2, 2], [21, 3, 3, 0, 3, 2, 40], [22, 3, 3, 0, 2, 2, 40]] as [[UInt8]] {
            let peer = try ScriptedPeer.listening([.send(Array("ok\r\n".utf8) + bytes), .expectEnd])
            let socket = AsyncSocket()
            try await socket.connect(to: "127.0.0.1", port: peer.port)
            _ = try await socket.read(until: .lineEnd)
            let error = await #expect(throws: AsyncSocketError.self) {
                try await socket.startTLS(settings: TestCertificates.client())
            }
            #expect(error?.code == .earlyPlaintext)
            _ = try await peer.finish()
        }
    }

    /// The kernel's error for a peer that no longer responds.
    @Test func aPeerThatVanishesIsThePeersFault() {
        for number in [ETIMEDOUT, EHOSTUNREACH, ENETUNREACH] {
            for operation in [AsyncSocketError.Operation.read, .write] {
                let error = AsyncSocketError(SystemError("recv", errno: number), operation: operation)
                #expect((error.code, error.fault, error.errno) == (.connectionTimedOut, .peer, number))
            }
            #expect(AsyncSocketError(SystemError("bind", errno: number), operation: .accept).code == .system)
        }
    }

    @Test func aListenerKeepsItsLimitOfHandshakes() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        listener.maximumHandshakes = 5
        await listener.close()
        #expect(listener.maximumHandshakes == 5)
        listener.maximumHandshakes = 7
        #expect(listener.maximumHandshakes == 7)
    }
}
