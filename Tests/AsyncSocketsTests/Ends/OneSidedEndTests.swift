import AsyncSocketsTesting
import Foundation
import Glibc
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// A peer that ends its side with a FIN and no close_notify, and goes on reading: our side goes on, and who
/// reads learns that bytes may be missing.
@Suite(.timeLimit(.minutes(20))) struct OneSidedEndTests {
    /// When the answer is written: the peer has ended its side before, or ends it while the write waits.
    enum Moment: CaseIterable, Sendable {
        case afterTheRead, beforeTheRead, whileItWaits
    }

    private static let answer = [UInt8](repeating: 7, count: 8 << 20)

    private func connected(_ version: TLSVersion, _ moment: Moment, _ mayEnd: TestSignal) async throws -> (
        AsyncSocket, ScriptedPeer
    ) {
        let end: [ScriptedPeer.Step] =
            moment == .whileItWaits
            ? [.expect([7]), .finish, .expect([UInt8](Self.answer.dropFirst()))] : [.finish, .expect(Self.answer)]
        let peer = try ScriptedPeer.listening(
            [.startTLS(try TestCertificates.server()), .send("a question\nand more"), .wait(for: mayEnd)] + end + [.expectEnd])
        let socket = AsyncSocket()
        try await socket.connect(to: "127.0.0.1", port: peer.port, tls: TestCertificates.client().only(version))
        return (socket, peer)
    }

    @Test(arguments: TLSVersion.tested, Moment.allCases)
    func aTaskStillWritesItsAnswer(version: TLSVersion, moment: Moment) async throws {
        let mayEnd = try TestSignal()
        let (socket, peer) = try await connected(version, moment, mayEnd)
        #expect(try await socket.readLine() == "a question")
        mayEnd.fire()
        if moment == .afterTheRead {
            #expect(try await socket.read(exactly: 8) == Data("and more"))
            #expect(await outcome { try await socket.read() } == .failed(.truncated))
        }
        try await socket.write(Self.answer)
        if moment != .afterTheRead { #expect(try await socket.read(exactly: 8) == Data("and more")) }
        #expect(await outcome { try await socket.read(exactly: 1) } == .failed(.truncated))
        #expect(await outcome { try await socket.readToEnd() } == .failed(.truncated))
        #expect(socket.isConnected)
        try await socket.close()
        _ = try await peer.finish()
    }

    /// The end is told once: by a read that it ends, or at the end of the connection.
    @Test(arguments: TLSVersion.tested, [true, false])
    func aDelegateStillWritesItsAnswer(version: TLSVersion, reads: Bool) async throws {
        let mayEnd = try TestSignal()
        mayEnd.fire()
        let peer = try ScriptedPeer.listening([
            .startTLS(try TestCertificates.server()), .send("a question\r\n"), .finish, .expect("an answer"), .expectEnd,
        ])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.autoDisconnectOnClosedReadStream = false
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: 60)
        try socket.beginTLS(settings: TestCertificates.client().only(version))
        try await recorder.connected()
        try await recorder.secured()
        socket.readData(to: .lineEnd, withTimeout: 60, tag: 1)
        #expect(try await recorder.readText() == "a question\r\n")
        try await recorder.readStreamClosed()
        if reads {
            socket.readData(withTimeout: 60, tag: 2)
            let told = try await recorder.notRead()
            #expect((told.tag, told.error.code) == (2, .truncated))
        }
        socket.write(Data("an answer"), tag: 3)
        #expect(try await recorder.wrote() == 3)
        socket.disconnectAfterWriting()
        #expect(try await recorder.disconnected()?.code == (reads ? nil : .truncated))
        _ = try await peer.finish()
    }

    /// RFC 5246, 7.2.1: a missing close_notify costs no session.
    @Test(arguments: TLSVersion.tested, [true, false])
    func aSessionIsKept(version: TLSVersion, isClosing: Bool) async throws {
        var settings = try TestCertificates.server()
        settings.sessionTicketCount = 2
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
        let client = try TestCertificates.client().only(version)
        let server: @Sendable (AsyncSocket) async throws -> Void = { socket in
            try await socket.write("hello\n")
            if isClosing { _ = try await socket.readLine() }
            // A FIN, and no close_notify.
            socket.perform { _ = $0.map { shutdown($0, Int32(SHUT_WR)) } }
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

    /// With bytes that no one has read, and no read that waits.
    @Test(arguments: [false, true], [false, true])
    func aRefusedClientIsGoneAtOnce(isStranger: Bool, isDelegates: Bool) async throws {
        var (client, server) = try TestCertificates.mutual(.onRequest)
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
