import Dispatch
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import SocketCore

@Suite(.timeLimit(.patient)) struct LoopWatchRaceTests {
    private final class Handler: EventHandler {
        func handle(_ events: LoopEvents) {}
    }

    /// The connection that blocks a loop may be removed while its name is looked up.
    @Test func aHandlerMayLeaveWhileItIsLookedUp() throws {
        let runner = try LoopRunner()
        let handler = Handler()
        let address = LoopTable.address(of: handler)
        let isOver = Locked(false)
        let isIdle = DispatchSemaphore(value: 0)
        DispatchQueue.global().async {
            while !isOver.withLock({ $0 }) {
                let registration = runner.withTable { $0.insert(handler) }
                _ = runner.withTable { $0.remove(registration) }
            }
            isIdle.signal()
        }
        var found = (yes: 0, no: 0)
        // On a busy machine, the other thread may start late.
        let end = Deadline(after: Patience.seconds) ?? .never
        func isEnough() -> Bool {
            if found.yes == 0 || found.no == 0 { return Deadline.now >= end }
            return min(found.yes, found.no) >= 10_000 || found.yes + found.no >= 10_000_000
        }
        while !isEnough() {
            if LoopWatch.handler(at: address, on: [runner]) == nil { found.no += 1 } else { found.yes += 1 }
        }
        isOver.withLock { $0 = true }
        isIdle.wait()
        #expect(found.yes > 0 && found.no > 0)
    }
}
