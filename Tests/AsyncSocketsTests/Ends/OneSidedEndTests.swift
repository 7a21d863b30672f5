import AsyncSocketsTesting
import Foundation
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A peer closes its side with a FIN without close_notify, and continues to read. Our side stays open, and
/// reads report that bytes may be missing.
@Suite(.timeLimit(.patient)) struct OneSidedEndTests {
    /// When the peer closes its side: before the reply is written, or while the write is waiting.
    enum Moment: CaseIterable, Sendable {
        case afterTheRead, beforeTheRead, whileItWaits
    }

    /// More than the kernel buffers of both sides hold.
    private static let answer = Data(count: 16 << 20)

    @Test(arguments: TLSProtocolVersion.tested, Moment.allCases)
    func aTaskStillWritesItsAnswer(version: TLSProtocolVersion, moment: Moment) async throws {
        let pair = try await SocketPair(tls: version)
        let (socket, peer) = (pair.client, pair.server)
        try await peer.write("a question\nand more")
        #expect(try await socket.readLine() == "a question")
        if moment != .whileItWaits { peer.sendEnd() }
        if moment == .afterTheRead {
            #expect(try await socket.read(exactly: 8) == Data("and more"))
            #expect(await outcome { try await socket.read() } == .failed(.truncated))
        }
        let writing = Task.immediate { try await socket.write(Self.answer) }
        if moment == .whileItWaits {
            try await eventually("it waits") { socket.writeProgress != nil }
            peer.sendEnd()
        }
        let received = Task.immediate { try await peer.readToEnd(maxLength: .max) }
        try await writing.value
        if moment != .afterTheRead { #expect(try await socket.read(exactly: 8) == Data("and more")) }
        #expect(await outcome { try await socket.read(exactly: 1) } == .failed(.truncated))
        #expect(await outcome { try await socket.readToEnd() } == .failed(.truncated))
        #expect(socket.isConnected)
        try await socket.close()
        #expect(try await received.value == Self.answer)
    }

    /// The truncation is reported once, by a read or at the end of the connection.
    @Test(arguments: TLSProtocolVersion.tested, [true, false])
    func aDelegateStillWritesItsAnswer(version: TLSProtocolVersion, reads: Bool) async throws {
        let mayEnd = try TestSignal()
        mayEnd.fire()
        let peer = try ScriptedPeer.listening([
            .startTLS(try TestCertificates.server()), .send("a question\r\n"), .finish, .expect("an answer"), .expectEnd,
        ])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.autoDisconnectOnClosedReadStream = false
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try socket.beginTLS(settings: TestCertificates.client().only(version))
        try await recorder.connected()
        try await recorder.secured()
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        #expect(try await recorder.readText() == "a question\r\n")
        try await recorder.readStreamClosed()
        if reads {
            socket.readData(withTimeout: .patient, tag: 2)
            let told = try await recorder.notRead()
            #expect((told.tag, told.error.code) == (2, .truncated))
        }
        socket.write(Data("an answer"), tag: 3)
        #expect(try await recorder.wrote() == 3)
        socket.disconnectAfterWriting()
        #expect(try await recorder.disconnected()?.code == (reads ? nil : .truncated))
        _ = try await peer.finish()
    }

    /// According to RFC 5246, 7.2.1, a missing close_notify does not invalidate the session.
    @Test(arguments: TLSProtocolVersion.tested, [true, false])
    func aSessionIsKept(version: TLSProtocolVersion, isClosing: Bool) async throws {
        var settings = try TestCertificates.server()
        settings.sessionTickets = .issued(2)
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
        let client = try TestCertificates.client().only(version)
        let server: @Sendable (AsyncSocket) async throws -> Void = { socket in
            try await socket.write("hello\n")
            if isClosing { _ = try await socket.readLine() }
            socket.sendEnd()
            _ = try? await socket.readToEnd()
        }
        try await serving(listener, server) { _ in
            for round in 0..<3 {
                let socket = AsyncSocket()
                try await socket.connect(to: "127.0.0.1", port: listener.localPort, tls: client)
                #expect(socket.tlsSession?.isResumed == (round > 0), "\(round)")
                #expect(try await socket.readLine() == "hello")
                if isClosing { try await socket.write("bye\n") }
                #expect(await outcome { try await socket.read() } == .failed(.truncated))
                try await socket.close()
            }
        }
    }

    // MARK: - Requests for a client's certificate

    /// With unread bytes, and without a waiting read.
    @Test(arguments: [false, true], [false, true])
    func aRefusedClientIsGoneAtOnce(isStranger: Bool, isDelegates: Bool) async throws {
        var (client, server) = try TestCertificates.mutual(.certificatesOnRequest())
        client.allowsPostHandshakeAuthentication = true
        client.identity = isStranger ? try TestCertificates.stranger.issue(.client(commonName: "mallory")).identity() : nil
        server.trustEvaluation = .builtIn
        let link = try await Link.make()
        try await link.secure(client: client, server: server)
        link.client.write(Data("unread"), tag: 1)
        link.client.readData(tag: 2)
        #expect(try await link.atClient.wrote() == 1)
        let code: TLSError.Code = isStranger ? .unknownIssuer : .clientCertificateMissing
        if isDelegates {
            try link.server.beginClientCertificateRequest()
        } else {
            let error = await #expect(throws: AsyncSocketError.self) { try await link.server.requestClientCertificate() }
            #expect(error?.tls?.code == code)
        }
        #expect(try await link.atServer.disconnected()?.tls?.code == code)
        #expect(!link.server.isConnected)
        #expect(try await link.atClient.disconnected()?.tls?.alert != nil)
    }
}

extension AsyncSocket {
    /// Sends a FIN without close_notify.
    fileprivate func sendEnd() {
        perform { _ = $0.map { shutdown($0, Int32(SHUT_WR)) } }
    }
}
