import AsyncSocketsTesting
import Foundation
import Glibc
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The kernel refuses datagrams of UDP sockets for lack of room or memory. The calls are refused on the
/// thread that sends. The socket's loop, which sends the datagrams later, is not affected.
@Suite(.timeLimit(.patient), .ownThreads) struct RefusedDatagramTests {
    /// The errors after which a datagram stays in the queue. Only after EAGAIN does an event report that
    /// there is room.
    private static let shortages = [EAGAIN, ENOBUFS, ENOMEM]

    /// Makes the kernel report room: another datagram of the same socket has left. It goes to a socket that
    /// nobody reads.
    private func nudge(_ socket: AsyncUDPSocket) async throws {
        let other = try AsyncUDPSocket.bound()
        let address = try other.address.data
        await withCheckedContinuation { continuation in
            socket.perform { descriptors in
                for descriptor in descriptors {
                    address.withUnsafeBytes { address in
                        let target = address.baseAddress?.assumingMemoryBound(to: sockaddr.self)
                        _ = sendto(descriptor, [0], 1, Int32(MSG_DONTWAIT), target, socklen_t(address.count))
                    }
                }
                continuation.resume()
            }
        }
    }

    /// A socket and its peer, which have exchanged a datagram. So events from before the refusal are
    /// unlikely.
    private func sockets(
        _ recorder: DatagramRecorder? = nil
    ) async throws -> (socket: AsyncUDPSocket, peer: AsyncUDPSocket, target: SocketEndpoint) {
        let (socket, peer) = (recorder.map { AsyncUDPSocket(inlineDelegate: $0) } ?? AsyncUDPSocket(), try AsyncUDPSocket.bound())
        try socket.bind(toAddress: .loopback())
        try await socket.send(Data([255]), to: peer.address)
        try await peer.send(Data([255]), inReplyTo: peer.receive())
        #expect(try await socket.receive().data == Data([255]))
        return (socket, peer, try peer.address)
    }

    // MARK: - Plaintext

    @Test(arguments: shortages, [1, 100]) func aDelegatesDatagramsAreSentLater(errno: Int32, count: Int) async throws {
        let recorder = DatagramRecorder()
        let (socket, peer, target) = try await sockets(recorder)
        try refusing([.sendmsg, .sendmmsg], with: errno) {
            for tag in 0..<count { socket.send(Data([UInt8(tag), 7]), toAddress: target, withTimeout: .patient, tag: tag) }
        }
        if errno == EAGAIN { try await nudge(socket) }
        for tag in 0..<count { #expect(try await peer.receive().data == Data([UInt8(tag), 7])) }
        for tag in 0..<count { #expect(try await recorder.sent() == tag) }
        #expect(socket.isOpen && socket.pendingSendByteCount == 0)
    }

    /// A queued datagram times out, and the next datagram is sent. If an earlier event has reported
    /// room in the meantime, try again.
    @Test func aDatagramThatWaitsMayBeLate() async throws {
        try await eventually("the kernel has no room") {
            let recorder = DatagramRecorder()
            let (socket, peer, target) = try await sockets(recorder)
            try refusing([.sendmsg, .sendmmsg], with: EAGAIN) {
                socket.send(Data([0]), toAddress: target, withTimeout: 0.02, tag: 0)
                socket.send(Data([1]), toAddress: target, withTimeout: .patient, tag: 1)
            }
            guard case .notSent(tag: 0, let error) = try await recorder.next() else { return false }
            #expect(error.code == .writeTimeout)
            try await nudge(socket)
            #expect(try await recorder.sent() == 1)
            #expect(try await peer.receive().data == Data([1]))
            return true
        }
    }

    /// The socket closes after its queued datagrams.
    @Test(arguments: shortages) func aSocketThatClosesSendsWhatWaits(errno: Int32) async throws {
        let recorder = DatagramRecorder()
        let (socket, peer, target) = try await sockets(recorder)
        try refusing([.sendmsg, .sendmmsg], with: errno) {
            for tag in 0..<10 { socket.send(Data([UInt8(tag)]), toAddress: target, withTimeout: .patient, tag: tag) }
            socket.disconnectAfterSending()
        }
        if errno == EAGAIN { try await nudge(socket) }
        for tag in UInt8(0)..<10 { #expect(try await peer.receive().data == Data([tag])) }
        #expect(try await recorder.closed() == nil)
    }

    // MARK: - DTLS

    /// The first flight is not lost: the client's retransmission timer never fires.
    @Test(arguments: shortages) func aClientHelloIsSentLater(errno: Int32) async throws {
        let (client, server) = try await StyledDatagramSocket.pair(.delegate)
        client.socket.firstRetransmission = .patient
        server.socket.firstRetransmission = .patient
        try server.socket.beginDTLS(settings: TestCertificates.server())
        try refusing([.sendmsg, .sendmmsg], with: errno) {
            try client.socket.beginDTLS(settings: TestCertificates.client())
        }
        if errno == EAGAIN { try await nudge(client.socket) }
        for side in [client, server] { try await StyledDatagramSocket.secured(#require(side.recorder)) }
    }

    @Test(arguments: shortages) func messagesOverDTLSAreSentLater(errno: Int32) async throws {
        let (client, server) = try await StyledDatagramSocket.pair(.delegate)
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        try refusing([.sendmsg, .sendmmsg], with: errno) {
            for number in 0..<40 { client.socket.send(Data("\(number + 10)"), withTimeout: .patient, tag: number) }
        }
        if errno == EAGAIN { try await nudge(client.socket) }
        for number in 0..<40 { #expect(try await server.receive() == "\(number + 10)") }
        let recorder = try #require(client.recorder)
        for number in 0..<40 { #expect(try await recorder.sent() == number) }
    }

    // MARK: - Peers of a listener

    /// The event that reports room goes to the listener, so a peer's socket tries again automatically.
    @Test(arguments: shortages, [false, true]) func theDatagramsOfAPeerAreSentLater(errno: Int32, isSecure: Bool) async throws {
        let listener = try DatagramListener(address: .loopback(), dtls: isSecure ? TestCertificates.server() : nil)
        let peers = AsyncStream<AsyncUDPSocket>.makeStream()
        let serving = Task {
            try await listener.run { socket in
                peers.continuation.yield(socket)
                for try await datagram in socket.datagrams where datagram.data == Data("end") { return }
            }
        }
        let clients = (0..<3).map { _ in AsyncUDPSocket() }
        for client in clients {
            try await client.connect(to: "127.0.0.1", port: listener.localPort)
            if isSecure { try await client.startDTLS(settings: TestCertificates.client()) }
            try await client.send(Data("hello"))
            guard let peer = await peers.stream.first(where: { _ in true }) else { throw Unexpected(description: "no peer") }
            try refusing([.sendmsg, .sendmmsg], with: errno) {
                for number in UInt8(0)..<20 { peer.send(Data([number, 1]), withTimeout: .patient, tag: 1) }
            }
            for number in UInt8(0)..<20 { #expect(try await client.receive().data == Data([number, 1])) }
        }
        // Each peer's socket is still usable.
        for client in clients { try await client.send(Data("end")) }
        try await eventually("the peers are gone") { listener.snapshot.openCount == 0 }
        await listener.close(timeout: .zero)
        try await serving.value
    }
}
