import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// When a socket releases a user's object, its deinit runs without a lock held, so it may use the socket.
@Suite(.timeLimit(.patient)) struct LastReferenceTests {
    private final class Observer: SocketObserver {
        private let socket: AsyncSocket
        private let hasEnded: Locked<Bool>

        init(_ socket: AsyncSocket, _ hasEnded: Locked<Bool>) {
            (self.socket, self.hasEnded) = (socket, hasEnded)
        }

        deinit {
            let hasNoObserver = socket.observer == nil
            hasEnded.withLock { $0 = hasNoObserver }
        }
    }

    @Test func anObserverThatIsReplacedMayUseTheSocketInItsEnd() async throws {
        let socket = AsyncSocket()
        let hasEnded = Locked(false)
        socket.observer = Observer(socket, hasEnded)
        // A separate thread, because it would never return if it waited for its own lock.
        DispatchQueue(label: "replaces the observer").async { socket.observer = nil }
        try await eventually("the observer has ended, and has found itself replaced") { hasEnded.withLock { $0 } }
    }

    /// Releases the last reference to its socket in the first callback.
    private final class Forgetful: AsyncSocketDelegate, Sendable {
        private let socket: Locked<AsyncSocket?>
        private let calls = Locked(0)

        init(_ socket: AsyncSocket?) {
            self.socket = Locked(socket)
        }

        var callCount: Int { calls.withLock { $0 } }

        private func forget() {
            calls.withLock { $0 += 1 }
            // Release it outside of the lock.
            _ = socket.withLock { $0.take() }
        }

        func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) { forget() }
        func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) { forget() }
    }

    private final class Acceptor: AsyncSocketDelegate, Sendable {
        let accepted = Locked<[Forgetful]>([])
        let bytesAreThere = DispatchSemaphore(value: 0)
        private let keepsSockets: Bool

        init(keepsSockets: Bool) {
            self.keepsSockets = keepsSockets
        }

        func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
            let delegate = Forgetful(keepsSockets ? newSocket : nil)
            accepted.withLock { $0.append(delegate) }
            newSocket.setInlineDelegate(delegate)
            for tag in 0..<3 { newSocket.readData(toLength: 3, withTimeout: .patient, tag: tag) }
            bytesAreThere.wait()
        }
    }

    /// Some of the sockets are on their listener's loop, which serves them before anything else.
    @Test(.ownThreads, arguments: [true, false])
    func aSocketThatIsGivenUpCallsNoMore(inACallback: Bool) async throws {
        let acceptor = Acceptor(keepsSockets: inACallback)
        let listener = AsyncSocket(inlineDelegate: acceptor)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        // More than there are loops.
        for count in 1...64 {
            let peer = try RawSocket.connected(to: .loopback(port: listener.localPort), waitLimit: .patient)
            try peer.send("abcdefghi")
            acceptor.bytesAreThere.signal()
            // Its connection closes with it, and the remaining bytes are lost.
            _ = try? peer.receiveAll()
            let accepted = acceptor.accepted.withLock { $0 }
            #expect(accepted.map(\.callCount) == Array(repeating: inACallback ? 1 : 0, count: count))
        }
        withExtendedLifetime(listener) {}
    }
}
