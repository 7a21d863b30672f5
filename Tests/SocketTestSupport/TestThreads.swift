import Dispatch
import Foundation
import SocketBuffers

/// Two threads for the tasks of one test, so that its many short steps do not each wait for other tests.
package final class TestThreads: TaskExecutor {
    private let jobs = Jobs()

    package init() {
        for _ in 0..<2 {
            Thread.detachNewThread { [jobs] in
                while let (job, executor) = jobs.next() { job.runSynchronously(on: executor.asUnownedTaskExecutor()) }
            }
        }
    }

    deinit { jobs.end() }

    package func enqueue(_ job: consuming ExecutorJob) {
        jobs.add(UnownedJob(job), of: self)
    }

    /// The pending jobs. Each keeps its executor alive.
    private final class Jobs: Sendable {
        private let waiting = Locked<(jobs: [(UnownedJob, TestThreads)], hasEnded: Bool)>(([], false))
        private let count = DispatchSemaphore(value: 0)

        func add(_ job: UnownedJob, of executor: TestThreads) {
            waiting.withLock { $0.jobs.append((job, executor)) }
            count.signal()
        }

        /// Returns nil at the end.
        func next() -> (UnownedJob, TestThreads)? {
            count.wait()
            return waiting.withLock { $0.hasEnded ? nil : $0.jobs.removeFirst() }
        }

        func end() {
            waiting.withLock { $0.hasEnded = true }
            count.signal()
            count.signal()
        }
    }
}
