import Foundation
import SocketBuffers
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct LockedTests {
    /// Each thread yields its processor while holding the lock, so that the others must sleep.
    @Test func noChangeIsLostWhenThreadsWaitForTheLock() async {
        let (threads, rounds) = (8, 2000)
        let count = Locked(0)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<threads {
                group.addTask {
                    await withCheckedContinuation { continuation in
                        Thread {
                            for _ in 0..<rounds {
                                count.withLock { count in
                                    let before = count
                                    sched_yield()
                                    count = before + 1
                                }
                            }
                            continuation.resume()
                        }.start()
                    }
                }
            }
        }
        #expect(count.withLock { $0 } == threads * rounds)
    }

    @Test func anErrorReleasesTheLock() throws {
        let value = Locked(0)
        #expect(throws: CancellationError.self) {
            try value.withLock { value in
                value = 1
                throw CancellationError()
            }
        }
        #expect(value.withLock { $0 } == 1)
    }
}
