import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// One side closes its write stream, and the other continues.
@Suite(.timeLimit(.patient)) struct HalfCloseTests {
    private func connect(_ steps: [ScriptedPeer.Step], tls version: TLSProtocolVersion? = nil) async throws -> (
        AsyncSocket, Recorder, ScriptedPeer
    ) {
        let start: [ScriptedPeer.Step] = version == nil ? [] : [.startTLS(try TestCertificates.server())]
        let peer = try ScriptedPeer.listening(start + steps)
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.autoDisconnectOnClosedReadStream = false
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        if let version { try socket.beginTLS(settings: TestCertificates.client().only(version)) }
        try await recorder.connected()
        if version != nil { try await recorder.secured() }
        return (socket, recorder, peer)
    }

    private static let layers: [TLSProtocolVersion?] = [nil, .tls12, .tls13]

    private func finish(_ version: TLSProtocolVersion?) -> [ScriptedPeer.Step] {
        version == nil ? [.finish] : [.sendCloseNotify, .finish]
    }

    @Test(arguments: layers)
    func writingWorksAfterThePeerClosesItsWriteSide(_ version: TLSProtocolVersion?) async throws {
        let (socket, recorder, peer) = try await connect(
            [.send("that is all\r\n")] + finish(version) + [.expect("and this is our answer")], tls: version)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        #expect(try await recorder.readText() == "that is all\r\n")
        try await recorder.readStreamClosed()
        #expect(socket.isConnected)
        socket.write(Data("and this is our answer"), withTimeout: .patient, tag: 2)
        #expect(try await recorder.wrote() == 2)
        socket.disconnectAfterWriting()
        #expect(try await recorder.disconnected() == nil)
        _ = try await peer.finish()
    }

    /// In the original, such a read waited forever, or timed out and closed the connection.
    @Test(arguments: layers)
    func d18AReadAfterEndOfStreamFailsAndKeepsTheConnection(_ version: TLSProtocolVersion?) async throws {
        let (socket, recorder, peer) = try await connect([.send("abc")] + finish(version) + [.expect("ok")], tls: version)
        socket.readData(toLength: 5, withTimeout: .patient, tag: 1)
        try await recorder.readStreamClosed()
        let early = try await recorder.notRead()
        #expect((early.data, early.tag) == (Data("abc"), 1))
        #expect(early.error.code == .closedByPeer)
        socket.readData(withTimeout: -1, tag: 2)
        let late = try await recorder.notRead()
        #expect((late.data, late.tag) == (Data(), 2))
        socket.write(Data("ok"), withTimeout: .patient, tag: 3)
        #expect(try await recorder.wrote() == 3)
        socket.disconnectAfterWriting()
        #expect(try await recorder.disconnected() == nil)
        _ = try await peer.finish()
    }

    @Test(arguments: layers)
    func aReadToTheEndBehindAShortReadIsGivenUpWithIt(_ version: TLSProtocolVersion?) async throws {
        let areQueued = try TestSignal()
        let (socket, recorder, peer) = try await connect(
            [.send("abc"), .wait(for: areQueued)] + finish(version) + [.expect("ok")], tls: version)
        socket.readData(toLength: 5, withTimeout: .patient, tag: 1)
        socket.readDataToEnd(withTimeout: .patient, tag: 2)
        areQueued.fire()
        try await recorder.readStreamClosed()
        for expected in [(Data("abc"), 1), (Data(), 2)] {
            let told = try await recorder.notRead()
            #expect((told.data, told.tag) == expected)
            #expect(told.error.code == .closedByPeer)
        }
        socket.write(Data("ok"), withTimeout: .patient, tag: 3)
        #expect(try await recorder.wrote() == 3)
        socket.disconnectAfterWriting()
        #expect(try await recorder.disconnected() == nil)
        _ = try await peer.finish()
    }

    /// Requested after the end was delivered.
    @Test(arguments: layers)
    func aReadToTheEndBehindTheEndIsCompleteAndEmpty(_ version: TLSProtocolVersion?) async throws {
        let (socket, recorder, peer) = try await connect([.send("abc")] + finish(version) + [.expect("ok")], tls: version)
        socket.readDataToEnd(withTimeout: .patient, tag: 1)
        #expect(try await recorder.readText() == "abc")
        try await recorder.readStreamClosed()
        for tag in 2...3 {
            socket.readDataToEnd(withTimeout: .patient, tag: tag)
            #expect(try await recorder.readText() == "")
        }
        socket.write(Data("ok"), withTimeout: .patient, tag: 4)
        #expect(try await recorder.wrote() == 4)
        socket.disconnectAfterWriting()
        #expect(try await recorder.disconnected() == nil)
        _ = try await peer.finish()
    }

    @Test(arguments: layers)
    func d18TheWriteSideCanBeClosedWhileReadingContinues(_ version: TLSProtocolVersion?) async throws {
        let (socket, recorder, peer) = try await connect(
            [.expect("the question"), .expectEnd, .send("the answer\r\n")] + finish(version), tls: version)
        socket.write(Data("the question"), withTimeout: .patient, tag: 1)
        socket.closeWriteStream()
        socket.write(Data("not any more"), withTimeout: .patient, tag: 2)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 3)
        #expect(try await recorder.readText() == "the answer\r\n")
        // Both sides are closed now.
        #expect(try await recorder.disconnected()?.code == .closedByPeer)
        _ = try await peer.finish()
    }

    @Test func closingOurSideTwiceAndWithNothingConnectedIsHarmless() async throws {
        let (socket, recorder, peer) = try await connect([.expectEnd, .finish])
        socket.closeWriteStream()
        socket.closeWriteStream()
        #expect(try await recorder.disconnected()?.code == .closedByPeer)
        socket.closeWriteStream()
        #expect(socket.isDisconnected)
        _ = try await peer.finish()
    }

    @Test func startTLSAfterOurSideIsClosedIsTheCallersError() async throws {
        let (socket, _, peer) = try await connect([.expectEnd])
        socket.closeWriteStream()
        let error = #expect(throws: AsyncSocketError.self) { try socket.beginTLS(settings: TestCertificates.client()) }
        #expect(error?.code == .closed)
        _ = try await peer.finish()
    }

    @Test(arguments: [TLSProtocolVersion.tls12, .tls13])
    func aTruncationIsToldToTheRead(_ version: TLSProtocolVersion) async throws {
        let (socket, recorder, peer) = try await connect([.send("abc"), .finish, .expect("ok"), .expectEnd], tls: version)
        socket.readData(toLength: 5, withTimeout: .patient, tag: 1)
        try await recorder.readStreamClosed()
        let told = try await recorder.notRead()
        #expect((told.data, told.error.code) == (Data("abc"), .truncated))
        socket.write(Data("ok"), tag: 2)
        #expect(try await recorder.wrote() == 2)
        socket.disconnectAfterWriting()
        #expect(try await recorder.disconnected() == nil)
        _ = try await peer.finish()
    }

    @Test func aResetAfterTheReadStreamHasEndedIsNoticed() async throws {
        let signal = try TestSignal()
        let (socket, recorder, peer) = try await connect([.finish, .wait(for: signal), .reset])
        try await recorder.readStreamClosed()
        signal.fire()
        #expect(try await recorder.disconnected()?.code == .connectionReset)
        withExtendedLifetime((socket, peer)) {}
    }

    @Test func withAutoDisconnectTheConnectionClosesAtEndOfStream() async throws {
        let (socket, recorder, _) = try await connect([.send("abc"), .finish])
        socket.autoDisconnectOnClosedReadStream = true
        socket.readData(toLength: 3, withTimeout: .patient, tag: 1)
        #expect(try await recorder.readText() == "abc")
        #expect(try await recorder.disconnected()?.code == .closedByPeer)
    }
}
