import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import FoundationEssentials
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// Sockets on descriptors created by other code.
@Suite(.timeLimit(.patient)) struct AdoptionTests {
    /// Returns a peer and a descriptor to adopt.
    private static func pair() throws -> (RawSocket, CInt) {
        let (peer, other) = try RawSocket.pair()
        return (peer, other.duplicate())
    }

    private static func expectConversation(_ socket: AsyncSocket, _ recorder: Recorder, with peer: RawSocket) async throws {
        socket.write(Data("ping"), withTimeout: .patient, tag: 0)
        #expect(try peer.receive(atLeast: 4) == "ping")
        try peer.send("pong")
        socket.readData(toLength: 4, withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText() == "pong")
    }

    @Test func aTCPConnectionIsAdopted() async throws {
        let listener = try RawSocket.listening()
        let raw = try RawSocket.connected(to: listener.localAddress)
        let peer = try listener.accepted()
        let recorder = Recorder()
        let descriptor = raw.duplicate()
        let socket = try AsyncSocket(adopting: descriptor, delegate: recorder, delegateQueue: DispatchQueue(label: "delegate"))
        #expect(socket.isConnected && socket.isIPv4)
        #expect(try socket.connectedAddress == listener.localAddress && socket.localAddress == raw.localAddress)
        #expect(fcntl(descriptor, F_GETFD) == FD_CLOEXEC)
        #expect(fcntl(descriptor, F_GETFL) & CInt(SOCK_NONBLOCK.rawValue) != 0)
        try await Self.expectConversation(socket, recorder, with: peer)
    }

    @Test func d14AUnixStreamIsAdopted() async throws {
        let (peer, descriptor) = try Self.pair()
        let recorder = Recorder()
        let socket = try AsyncSocket(adopting: descriptor, inlineDelegate: recorder)
        #expect(socket.isConnected && !socket.isIPv4 && !socket.isIPv6)
        try await Self.expectConversation(socket, recorder, with: peer)
        socket.disconnect()
        #expect(try await recorder.disconnected() == nil)
        #expect(try peer.receive(atLeast: 1) == "", "the descriptor is not closed")
        withExtendedLifetime(socket) {}
    }

    @Test func d14AdoptingADescriptorOnTheSocketQueueDoesNotDeadlock() async throws {
        let (peer, descriptor) = try Self.pair()
        let queue = DispatchQueue(label: "socket and delegate")
        let recorder = Recorder()
        let socket = try queue.sync {
            let socket = try AsyncSocket(adopting: descriptor, delegate: recorder, delegateQueue: queue, socketQueue: queue)
            #expect(socket.isConnected)
            return socket
        }
        try await Self.expectConversation(socket, recorder, with: peer)
    }

    @Test func d14WritingToAClosedPeerDoesNotRaiseSIGPIPE() async throws {
        let recorder = Recorder()
        let socket = try {
            let (peer, descriptor) = try Self.pair()
            try peer.send("x")
            return try AsyncSocket(adopting: descriptor, inlineDelegate: recorder)
        }()
        // The write fails even if the byte is not read.
        socket.write(Data(count: 1024 * 1024), withTimeout: .patient, tag: 0)
        let error = try #require(try await recorder.disconnected())
        #expect([.connectionReset, .closedByPeer].contains(error.code))
        withExtendedLifetime(socket) {}
    }

    @Test func whatThePeerSaidBeforeItWentIsReadThoughTheWriteBeforeFails() async throws {
        let recorder = Recorder()
        let socket = try {
            let (peer, descriptor) = try Self.pair()
            try peer.send("421 bye\r\n")
            return try AsyncSocket(adopting: descriptor, inlineDelegate: recorder)
        }()
        socket.failedWriteGrace = .infinity
        socket.write(Data(count: 1024 * 1024), withTimeout: .patient, tag: 0)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        #expect(try await recorder.readText() == "421 bye\r\n")
        #expect([.connectionReset, .closedByPeer].contains(try await recorder.disconnected()?.code))
        withExtendedLifetime(socket) {}
    }

    /// Returns a socket whose peer has sent five lines and closed, so that a write fails.
    private static func afterLastWords(_ recorder: Recorder, grace: TimeInterval) throws -> AsyncSocket {
        let (peer, descriptor) = try Self.pair()
        try peer.send("one\r\ntwo\r\nthree\r\nfour\r\nfive\r\n")
        let socket = try AsyncSocket(adopting: descriptor, inlineDelegate: recorder)
        socket.failedWriteGrace = grace
        withExtendedLifetime(peer) {}
        return socket
    }

    private static func expectLine(_ line: String, _ socket: AsyncSocket, _ recorder: Recorder) async throws {
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText() == line + "\r\n")
    }

    /// The time between reads does not matter, because no timer runs here.
    @Test func aSlowReaderGetsAllThatCameBeforeTheEnd() async throws {
        let recorder = Recorder()
        let socket = try Self.afterLastWords(recorder, grace: .infinity)
        socket.write(Data(count: 1024 * 1024), withTimeout: -1, tag: 0)
        for line in ["one", "two", "three", "four", "five"] { try await Self.expectLine(line, socket, recorder) }
        #expect([.connectionReset, .closedByPeer].contains(try await recorder.disconnected()?.code))
        withExtendedLifetime(socket) {}
    }

    @Test func aReadGivesAFailedWriteItsGracePeriodOnceMore() async throws {
        let recorder = Recorder()
        let socket = try Self.afterLastWords(recorder, grace: 3600)
        socket.write(Data(count: 1024 * 1024), withTimeout: -1, tag: 0)
        try await Self.expectLine("one", socket, recorder)
        // The grace period of an hour that is already running stays, and the next read starts a shorter one.
        socket.failedWriteGrace = 0
        try await Self.expectLine("two", socket, recorder)
        #expect([.connectionReset, .closedByPeer].contains(try await recorder.disconnected()?.code))
        withExtendedLifetime(socket) {}
    }

    @Test func aFailedWriteIsToldWhenItsGracePeriodIsOver() async throws {
        let recorder = Recorder()
        let socket = try Self.afterLastWords(recorder, grace: 0)
        socket.write(Data(count: 1024 * 1024), withTimeout: -1, tag: 0)
        #expect([.connectionReset, .closedByPeer].contains(try await recorder.disconnected()?.code))
        withExtendedLifetime(socket) {}
    }

    @Test func whatIsNoConnectedStreamIsRefusedAndLeftAsItWas() throws {
        let listener = try RawSocket.listening()
        let (datagram, peer) = try RawSocket.pair(SOCK_DGRAM)
        let unconnected = try RawSocket.refusing()
        let file = open("/dev/null", O_RDWR)
        let udp = try RawSocket(AF_INET, SOCK_DGRAM)
        defer { close(file) }
        let refused = [
            (listener.descriptor, ENOTCONN), (unconnected.descriptor, ENOTCONN),
            (datagram.descriptor, ESOCKTNOSUPPORT), (udp.descriptor, ESOCKTNOSUPPORT), (file, ENOTSOCK), (-1, EBADF),
        ]
        for (descriptor, number) in refused {
            let flags = fcntl(descriptor, F_GETFL)
            let error = #expect(throws: AsyncSocketError.self) { try AsyncSocket(adopting: descriptor) }
            #expect(error?.code == .badParameter && error?.errno == number)
            #expect(fcntl(descriptor, F_GETFL) == flags, "descriptor \(descriptor) has changed")
        }
        withExtendedLifetime((listener, unconnected, datagram, peer, udp)) {}
    }
}
