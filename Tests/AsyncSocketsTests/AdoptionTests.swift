import AsyncSockets
import Dispatch
import FoundationEssentials
import Glibc
import SocketCore
import SocketTestSupport
import Testing

/// Sockets on descriptors that somebody else has made.
@Suite(.timeLimit(.minutes(5))) struct AdoptionTests {
    private static func pair(_ type: __socket_type = SOCK_STREAM) throws -> (RawSocket, CInt) {
        var descriptors: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(type.rawValue), 0, &descriptors) == 0)
        return (try RawSocket(owning: descriptors[0]), descriptors[1])
    }

    private static func expectConversation(_ socket: AsyncSocket, _ recorder: Recorder, with peer: RawSocket) async throws {
        socket.write(Data("ping"), withTimeout: 60, tag: 0)
        #expect(peer.receive(4) == "ping")
        peer.send("pong")
        socket.readData(toLength: 4, withTimeout: 60, tag: 0)
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
        #expect(peer.receive(1) == "", "the descriptor is not closed")
        withExtendedLifetime(socket) {}
    }

    @Test func d14AdoptingOnTheGivenQueueDoesNotDeadlock() async throws {
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

    @Test func d14WritingToAPeerThatHasGoneIsNoSignal() async throws {
        let recorder = Recorder()
        let socket = try {
            let (peer, descriptor) = try Self.pair()
            peer.send("x")
            return try AsyncSocket(adopting: descriptor, inlineDelegate: recorder)
        }()
        // Nobody has read the byte yet, and nobody will; who waits for the write is told all the same.
        socket.write(Data(count: 1024 * 1024), withTimeout: 60, tag: 0)
        let error = try #require(try await recorder.disconnected())
        #expect([.connectionReset, .closedByPeer].contains(error.code))
        withExtendedLifetime(socket) {}
    }

    @Test func whatThePeerSaidBeforeItWentIsReadThoughTheWriteBeforeFails() async throws {
        let recorder = Recorder()
        let socket = try {
            let (peer, descriptor) = try Self.pair()
            peer.send("421 bye\r\n")
            return try AsyncSocket(adopting: descriptor, inlineDelegate: recorder)
        }()
        socket.write(Data(count: 1024 * 1024), withTimeout: 60, tag: 0)
        socket.readData(to: .lineEnd, withTimeout: 60, tag: 1)
        #expect(try await recorder.readText() == "421 bye\r\n")
        #expect([.connectionReset, .closedByPeer].contains(try await recorder.disconnected()?.code))
        withExtendedLifetime(socket) {}
    }

    /// The write has failed, and who waits for it is told when nobody has read for a second: not before.
    @Test func aSlowReaderGetsAllThatCameBeforeTheEnd() async throws {
        // On a machine with too much to do a second may be over between two reads: then it counts for nothing.
        for _ in 0..<20 {
            do {
                return try await readSlowly()
            } catch let slip as Slip where slip.seconds > 0.8 {
                continue
            }
        }
        Issue.record("the machine had no time for this test")
    }

    /// The connection ended before everything was read, so long after the read before was asked for.
    private struct Slip: Error {
        let seconds: Double
    }

    private func readSlowly() async throws {
        let (silentPeer, silentDescriptor) = try Self.pair()
        let pauses = Recorder()
        let silent = try AsyncSocket(adopting: silentDescriptor, inlineDelegate: pauses)
        silent.keepsConnectionOnReadTimeout = true
        let recorder = Recorder()
        let socket = try {
            let (peer, descriptor) = try Self.pair()
            peer.send("one\r\ntwo\r\nthree\r\nfour\r\nfive\r\n")
            return try AsyncSocket(adopting: descriptor, inlineDelegate: recorder)
        }()
        socket.write(Data(count: 1024 * 1024), withTimeout: 60, tag: 0)
        var lastAsked = ContinuousClock.now
        for (tag, line) in ["one", "two", "three", "four", "five"].enumerated() {
            let asked = ContinuousClock.now
            socket.readData(to: .lineEnd, withTimeout: 60, tag: tag)
            let told = await recorder.next()
            if case .disconnected = told { throw Slip(seconds: (ContinuousClock.now - lastAsked) / .seconds(1)) }
            guard case .read(let data, tag: tag) = told else { throw Unexpected(description: "\(told)") }
            #expect(data == Data((line + "\r\n").utf8))
            lastAsked = asked
            // Time goes by: what nobody sends cannot be read.
            silent.readData(toLength: 1, withTimeout: 0.3, tag: tag)
            #expect(try await pauses.notRead().error.code == .readTimeout)
        }
        #expect([.connectionReset, .closedByPeer].contains(try await recorder.disconnected()?.code))
        withExtendedLifetime((socket, silent, silentPeer)) {}
    }

    @Test func whatIsNoConnectedStreamIsRefusedAndLeftAsItWas() throws {
        let listener = try RawSocket.listening()
        let (peer, datagram) = try Self.pair(SOCK_DGRAM)
        let unconnected = try RawSocket.refusing()
        let file = open("/dev/null", O_RDWR)
        let udp = socket(AF_INET, CInt(SOCK_DGRAM.rawValue), 0)
        defer { for descriptor in [datagram, file, udp] { close(descriptor) } }
        let refused = [
            (listener.descriptor, ENOTCONN), (unconnected.descriptor, ENOTCONN), (datagram, ESOCKTNOSUPPORT),
            (udp, ESOCKTNOSUPPORT),
            (file, ENOTSOCK), (-1, EBADF),
        ]
        for (descriptor, number) in refused {
            let flags = fcntl(descriptor, F_GETFL)
            let error = #expect(throws: AsyncSocketError.self) { try AsyncSocket(adopting: descriptor) }
            #expect(error?.code == .badParameter && error?.errno == number)
            #expect(fcntl(descriptor, F_GETFL) == flags, "descriptor \(descriptor) has changed")
        }
        withExtendedLifetime(peer) {}
    }
}
