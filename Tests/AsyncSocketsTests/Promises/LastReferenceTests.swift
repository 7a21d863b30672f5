import Dispatch
import SocketBuffers
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// An object of the user's that a socket gives up runs its end with no lock held: it may use the socket.
@Suite(.timeLimit(.minutes(20))) struct LastReferenceTests {
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
        // A thread of its own: one that waits for its own lock never comes back.
        DispatchQueue(label: "replaces the observer").async { socket.observer = nil }
        try await eventually("the observer has ended, and has found itself replaced") { hasEnded.withLock { $0 } }
    }
}
