import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// The end of a connection whose peer is faulty, hostile or gone.
@Suite(.timeLimit(.patient), .serialized) struct EndingTests {
    /// Returns one of our sockets connected to a scripted peer.
    private func connect(to peer: ScriptedPeer) async throws -> (AsyncSocket, Recorder) {
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        return (socket, recorder)
    }

    // MARK: - Plain

    @Test func theAddressesStayAfterTheEnd() async throws {
        let link = try await Link.make()
        let client = link.client
        let (local, peer) = (try #require(client.localAddress), try #require(client.connectedAddress))
        client.disconnect()
        #expect(try await link.atClient.disconnected() == nil)
        #expect((client.localAddress, client.connectedAddress) == (local, peer))
        #expect((client.localPort, client.localHost) == (local.port, "127.0.0.1"))
        #expect(AsyncSocket().localAddress == nil && AsyncSocket().localPort == 0)
    }

    @Test func aResetIsNotReportedAsAClose() async throws {
        let (socket, recorder) = try await connect(to: ScriptedPeer.listening([.expect("hello"), .reset]))
        socket.write(Data("hello"), withTimeout: .patient, tag: 0)
        socket.readData(withTimeout: .patient, tag: 0)
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .connectionReset)
        #expect(error.fault == .peer)
        #expect(error.errno != nil)
    }

    @Test func aResetIsNoticedWithoutARead() async throws {
        let (socket, recorder) = try await connect(to: ScriptedPeer.listening([.expect("hello"), .reset]))
        socket.write(Data("hello"), withTimeout: .patient, tag: 0)
        #expect(try await recorder.disconnected()?.code == .connectionReset)
    }

    /// The loop is blocked while the peer replies and closes. A single event then reports that the connection
    /// is established, that bytes are available, and that no more will follow.
    @Test func aPeerGoneBeforeTheLoopSeesTheConnectionIsServedToItsEnd() async throws {
        let loop = try SocketEventLoop()
        let gate = DispatchSemaphore(value: 0)
        let holder = Recorder { _, told in
            if case .connected = told { gate.wait() }
        }
        let silent = try ScriptedPeer.listening([.wait(for: TestSignal())])
        let held = AsyncSocket(inlineDelegate: holder)
        held.stay(on: loop)
        try held.connect(toHost: "127.0.0.1", onPort: silent.port, withTimeout: .patient)
        let gone = try TestSignal()
        let peer = try ScriptedPeer.listening([.send("hi\r\n"), .finish, .fire(gone)])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.stay(on: loop)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        socket.readData(to: .lineEnd, withTimeout: 2, tag: 1)
        try await gone.wait()
        gate.signal()
        try await recorder.connected()
        #expect(try await recorder.readText() == "hi\r\n")
        #expect(try await recorder.disconnected()?.code == .closedByPeer)
        silent.stop()
        withExtendedLifetime((holder, held)) {}
    }

    @Test func aLineSentByteByByteIsReadWhole() async throws {
        let (socket, recorder) = try await connect(to: ScriptedPeer.listening([.send("a line, byte by byte\r\n", inPiecesOf: 1)]))
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText() == "a line, byte by byte\r\n")
    }

    // MARK: - Secure

    private enum Ending: CaseIterable {
        case closeNotify, truncation, reset

        var steps: [ScriptedPeer.Step] {
            switch self {
            case .closeNotify: [.sendCloseNotify, .finish]
            case .truncation: [.finish]
            case .reset: [.reset]
            }
        }

        var code: AsyncSocketError.Code {
            switch self {
            case .closeNotify: .closedByPeer
            case .truncation: .truncated
            case .reset: .connectionReset
            }
        }
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func d7CloseNotifyTruncationAndResetAreDistinguished(_ version: TLSProtocolVersion) async throws {
        for ending in Ending.allCases {
            let steps: [ScriptedPeer.Step] = [.startTLS(try TestCertificates.server()), .expect("bye")]
            let (socket, recorder) = try await connect(to: ScriptedPeer.listening(steps + ending.steps))
            try socket.beginTLS(settings: TestCertificates.client().only(version))
            try await recorder.secured()
            socket.write(Data("bye"), withTimeout: .patient, tag: 0)
            socket.readData(withTimeout: .patient, tag: 0)
            let error = try #require(try await recorder.disconnected())
            #expect(error.code == ending.code, "\(ending)")
            #expect(error.fault == .peer)
        }
    }

    /// The close_notify follows the bytes immediately, without a FIN. No kernel event announces it, wherever
    /// a turn stops.
    @Test(arguments: TLSProtocolVersion.tested)
    func aCloseNotifyRightBehindBytesIsToldWhateverTheirNumber(_ version: TLSProtocolVersion) async throws {
        let settings = try TestCertificates.server()
        for count in stride(from: 180_000, to: 340_000, by: 5000) {
            let sent = try TestSignal()
            let peer = try ScriptedPeer.listening([
                .startTLS(settings), .send([UInt8](repeating: 7, count: count)), .sendCloseNotify, .fire(sent),
            ])
            let (socket, recorder) = try await connect(to: peer)
            try socket.beginTLS(settings: TestCertificates.client().only(version))
            try await recorder.secured()
            try await sent.wait()
            socket.readData(toLength: 1 << 20, withTimeout: -1, tag: 0)
            #expect(try await recorder.disconnected()?.code == .closedByPeer, "\(count) bytes")
        }
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func bytesBeforeATruncationAreDeliveredAndThenItIsReported(_ version: TLSProtocolVersion) async throws {
        let (socket, recorder) = try await connect(
            to: ScriptedPeer.listening([.startTLS(TestCertificates.server()), .send("half a sen"), .finish]))
        try socket.beginTLS(settings: TestCertificates.client().only(version))
        try await recorder.secured()
        socket.readData(toLength: 10, withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText() == "half a sen")
        socket.readData(withTimeout: .patient, tag: 0)
        #expect(try await recorder.disconnected()?.code == .truncated)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func ourDisconnectSendsACloseNotify(_ version: TLSProtocolVersion) async throws {
        let peer = try ScriptedPeer.listening([.startTLS(TestCertificates.server()), .expect("bye"), .expectEnd])
        let (socket, recorder) = try await connect(to: peer)
        try socket.beginTLS(settings: TestCertificates.client().only(version))
        try await recorder.secured()
        socket.write(Data("bye"), withTimeout: .patient, tag: 0)
        socket.disconnectAfterWriting()
        #expect(try await recorder.disconnected() == nil)
        _ = try await peer.finish()
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func aHandshakeInPiecesOfOneByteSucceeds(_ version: TLSProtocolVersion) async throws {
        let peer = try ScriptedPeer.listening([.startTLS(TestCertificates.server()), .send("hello")])
        let relay = try TamperingRelay(toPort: peer.port, fromClient: [.pieces(of: 1)], fromServer: [.pieces(of: 1)])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: relay.port, withTimeout: .patient)
        try socket.beginTLS(settings: TestCertificates.client().only(version))
        socket.readData(toLength: 5, withTimeout: .patient, tag: 0)
        try await recorder.connected()
        try await recorder.secured()
        #expect(try await recorder.readText() == "hello")
    }

    // MARK: - Disconnects during the handshake

    /// The length of the handshake in the direction from the peer to us.
    private func handshakeLength(ofPeer settings: TLSSettings<some TLSRole.Side>, with ours: TLSSettings<some TLSRole.Side>)
        async throws
        -> Int
    {
        let atOurs = Recorder { socket, told in
            guard case .accepted(let socket) = told else { return }
            #expect(throws: Never.self) { try socket.beginTLS(settings: ours) }
        }
        let peer: ScriptedPeer
        let listener = AsyncSocket(inlineDelegate: atOurs)
        if ours.values.role == .server {
            try listener.accept(onInterface: "127.0.0.1", port: 0)
            peer = try ScriptedPeer.connecting(toPort: listener.localPort, [.startTLS(settings), .finish])
        } else {
            peer = try ScriptedPeer.listening([.startTLS(settings), .finish])
            try listener.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
            try listener.beginTLS(settings: ours)
        }
        let transcript = try await peer.finish().transcript
        return ours.values.role == .server ? transcript.fromClient.count : transcript.fromServer.count
    }

    /// Alternately sends a FIN and a reset after each byte of the peer's handshake.
    private func breakOff(
        _ range: Range<Int>, _ body: @escaping @Sendable (ScriptedPeer.HandshakeCut) async throws -> AsyncSocketError?
    ) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for lane in 0..<8 {
                group.addTask {
                    for length in range where length % 8 == lane {
                        let ending: ScriptedPeer.HandshakeCut.Ending = length / 8 % 2 == 0 ? .finish : .reset
                        let error = try await body(ScriptedPeer.HandshakeCut(after: length, ending))
                        let found = try #require(error, "no error after \(length) bytes")
                        #expect(found.fault == .peer, "after \(length) bytes: \(found)")
                        // A peer that closes immediately may be gone before the upgrade starts.
                        let isEarly = length == 0 && found.code == .closedByPeer
                        #expect(
                            found.tls?.code == .closedDuringHandshake || found.code == .connectionReset || isEarly,
                            "after \(length) bytes: \(found)")
                    }
                }
            }
            try await group.waitForAll()
        }
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func aServerThatGoesAwayAtAnyByteOfTheHandshakeIsATypedError(_ version: TLSProtocolVersion) async throws {
        // RSA signatures have a fixed length, so that every handshake has the same length.
        let identity = try TestCertificates.authority.issue(.server(names: ["localhost"]), keyType: .rsa2048).identity()
        let server = TLSSettings.server(identity: identity).patient
        let client = try TestCertificates.client().only(version)
        let length = try await handshakeLength(ofPeer: server, with: client)
        #expect(length > 500)
        try await breakOff(0..<length) { cut in
            let (socket, recorder) = try await connect(to: ScriptedPeer.listening([.startTLS(server, cut: cut)]))
            try socket.beginTLS(settings: client)
            return try await recorder.disconnected()
        }
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func aClientThatGoesAwayAtAnyByteOfTheHandshakeIsATypedError(_ version: TLSProtocolVersion) async throws {
        var (client, server) = try TestCertificates.mutual()
        client.identity = try TestCertificates.authority.issue(.client(commonName: "alice"), keyType: .rsa2048).identity()
        let (peer, ours) = (client.only(version), server)
        let length = try await handshakeLength(ofPeer: peer, with: ours)
        #expect(length > 500)
        try await breakOff(0..<length) { cut in
            let atListener = Recorder { _, told in
                guard case .accepted(let socket) = told else { return }
                #expect(throws: Never.self) { try socket.beginTLS(settings: ours) }
            }
            let listener = AsyncSocket(inlineDelegate: atListener)
            try listener.accept(onInterface: "127.0.0.1", port: 0)
            _ = try ScriptedPeer.connecting(toPort: listener.localPort, [.startTLS(peer, cut: cut)])
            let socket = try await atListener.accepted()
            defer { withExtendedLifetime(socket) { listener.disconnect() } }
            return try await atListener.disconnected()
        }
    }
}
