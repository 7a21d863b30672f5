import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A thread closes a socket while one of its callbacks starts TLS.
@Suite(.timeLimit(.patient)) struct ClosingUpgradeTests {
    enum Closing: CaseIterable, Sendable {
        case atOnce, afterWriting, ofOurSide

        /// The first half of the method.
        func claim(_ claims: inout CallerClaims) {
            claims.isDisconnected = self == .atOnce
            claims.isWriteStreamClosing = self == .ofOurSide
            switch self {
            case .atOnce: claims.closing = []
            case .afterWriting: claims.closing = .afterWrites
            case .ofOurSide: break
            }
        }

        func perform(on socket: AsyncSocket) {
            switch self {
            case .atOnce: socket.disconnect()
            case .afterWriting: socket.disconnectAfterWriting()
            case .ofOurSide: socket.closeWriteStream()
            }
        }
    }

    /// The program ignores the error, and the other thread has announced the close but not continued.
    @Test(arguments: Closing.allCases) func nothingLeavesBehindTheRefusal(_ closing: Closing) async throws {
        let (peer, own) = try RawSocket.pair(waitLimit: .patient)
        let refusal = Locked<AsyncSocketError.Code?>(nil)
        let recorder = Recorder { socket, told in
            guard case .read = told else { return }
            socket.connection?.record.withLock { closing.claim(&$0.claims) }
            do throws(AsyncSocketError) {
                try socket.beginTLS(settings: .client)
            } catch {
                refusal.withLock { $0 = error.code }
            }
            let secret = Data("secret")
            secret.withUnsafeBytes { socket.write($0.bytes, withTimeout: .patient, tag: 1) }
            socket.write(secret, withTimeout: .patient, tag: 2)
        }
        let socket = try AsyncSocket(adopting: own.duplicate(), inlineDelegate: recorder)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        try peer.send("go\r\n")
        #expect(try await recorder.readText() == "go\r\n")
        closing.perform(on: socket)
        #expect(refusal.withLock { $0 } == .closed)
        if closing != .ofOurSide {
            #expect(try await recorder.disconnected() == nil)
            // The socket has closed its descriptor, and this is a duplicate for the same end.
            own.finish()
        }
        #expect(try peer.receiveAll() == "")
        socket.disconnect()
    }

    /// A task that ignores the error of its upgrade reads no plaintext that the peer sends later.
    @Test func anUpgradeAfterOurFINEndsTheConnection() async throws {
        let (peer, own) = try RawSocket.pair(waitLimit: .patient)
        let socket = try AsyncSocket(adopting: own.duplicate())
        socket.closeWriteStream()
        #expect(try peer.receiveAll() == "")
        let refused = await #expect(throws: AsyncSocketError.self) {
            try await socket.startTLS(settings: .ofTests())
        }
        #expect(refused?.code == .closed)
        #expect(refused?.operation == .startTLS)
        try peer.send("MAIL FROM:<mallory@example.com>\r\n")
        let ended = await #expect(throws: AsyncSocketError.self) { try await socket.readLine() }
        #expect(ended?.code == .closed)
        withExtendedLifetime(own) {}
    }
}
