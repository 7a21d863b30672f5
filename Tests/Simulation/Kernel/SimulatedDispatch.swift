internal import CSimulation
internal import Glibc

/// The queues of libdispatch, the sources of event loops, and Swift's global executor, for simulated threads.
///
/// Every queue is serial. Worker threads run the blocks, in any order of the queues.
final class SimulatedDispatch: @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    private struct Queue {
        /// `nil` for the work of the simulation itself.
        let address: UnsafeMutableRawPointer?
        var blocks: [Work] = []
        var isBusy = false
    }

    private struct Delayed {
        let due: UInt64
        let queue: UnsafeMutableRawPointer?
        let block: Work
    }

    enum Work {
        case block(UnsafeMutableRawPointer)
        case closure(() -> Void)
    }

    private struct Source {
        let address: UnsafeMutableRawPointer
        let descriptor: Int32
        var handler: UnsafeMutableRawPointer?
    }

    private var queues: [Queue] = []
    private var delayed: [Delayed] = []
    private var sources: [Source] = []
    private var jobs: [UnownedJob] = []

    // MARK: - Queues

    func add(_ block: Work, to queue: UnsafeMutableRawPointer?, at due: UInt64) {
        if due > 0 { return delayed.append(Delayed(due: due, queue: queue, block: block)) }
        if let index = queues.firstIndex(where: { $0.address == queue }) {
            queues[index].blocks.append(block)
        } else {
            queues.append(Queue(address: queue, blocks: [block]))
        }
    }

    var nextDue: UInt64? { delayed.map(\.due).min() }

    func release(at now: UInt64) {
        for entry in delayed.filter({ $0.due <= now }) { add(entry.block, to: entry.queue, at: 0) }
        delayed.removeAll { $0.due <= now }
    }

    private var readyQueues: [Int] { queues.indices.filter { !queues[$0].isBusy && !queues[$0].blocks.isEmpty } }

    /// Runs blocks and jobs until the run is finished.
    func work(_ scheduler: Scheduler, until isOver: @escaping () -> Bool) {
        while true {
            CSim_set_simulated(false)
            scheduler.wait { [self] in isOver() || !readyQueues.isEmpty || !jobs.isEmpty }
            if isOver() { return }
            let ready = readyQueues
            let choice = scheduler.choices.pick(ready.count + (jobs.isEmpty ? 0 : 1), Choices.Stream.events)
            if choice == ready.count { runJob() } else { runBlock(of: queues[ready[choice]].address) }
        }
    }

    private func runJob() {
        let job = jobs.removeFirst()
        CSim_set_simulated(true)
        job.runSynchronously(on: GlobalExecutor.generic)
        CSim_set_simulated(false)
    }

    private func runBlock(of address: UnsafeMutableRawPointer?) {
        guard let index = queues.firstIndex(where: { $0.address == address }) else { return }
        let block = queues[index].blocks.removeFirst()
        queues[index].isBusy = true
        CSim_set_simulated(true)
        switch block {
        case .block(let block):
            CSim_call_block(block)
            CSim_release_block(block)
        case .closure(let body): body()
        }
        CSim_set_simulated(false)
        // Other queues may have been removed by now.
        guard let index = queues.firstIndex(where: { $0.address == address }) else { return }
        queues[index].isBusy = false
        if queues[index].blocks.isEmpty { queues.remove(at: index) }
    }

    func enqueue(_ job: UnownedJob) { jobs.append(job) }

    // MARK: - Sources

    func addSource(_ address: UnsafeMutableRawPointer, _ descriptor: Int32) {
        sources.append(Source(address: address, descriptor: descriptor))
    }

    func setHandler(_ handler: UnsafeMutableRawPointer, of address: UnsafeMutableRawPointer) {
        if let index = sources.firstIndex(where: { $0.address == address }) { sources[index].handler = handler }
    }

    /// Calls the handler of the source with that index whenever its descriptor is ready, until the run is
    /// over.
    func serve(_ index: Int, _ scheduler: Scheduler, _ kernel: Kernel, until isOver: @escaping () -> Bool) {
        while true {
            CSim_set_simulated(false)
            let source = sources[index]
            guard let set = kernel.find(source.descriptor, EventSet.self), let handler = source.handler else { return }
            scheduler.wait { isOver() || set.hasEvents }
            if isOver() { return }
            CSim_set_simulated(true)
            CSim_call_block(handler)
        }
    }

    var sourceCount: Int { sources.count }
}

@_cdecl("sim_dispatch") func simulatedDispatch(
    _ queue: UnsafeMutableRawPointer, _ block: UnsafeMutableRawPointer, _ due: UInt64
) -> Int32 {
    let kernel = Kernel.shared
    kernel.dispatch.add(.block(block), to: queue, at: due <= kernel.now ? 0 : due)
    kernel.point()
    return 0
}

@_cdecl("sim_source_created") func simulatedSource(_ source: UnsafeMutableRawPointer, _ descriptor: Int32) -> Int32 {
    Kernel.shared.dispatch.addSource(source, descriptor)
    return 0
}

@_cdecl("sim_source_handler") func simulatedSourceHandler(
    _ source: UnsafeMutableRawPointer, _ handler: UnsafeMutableRawPointer
) -> Int32 {
    Kernel.shared.dispatch.setHandler(handler, of: source)
    return 0
}

/// Swift's global executor.
enum GlobalExecutor {
    private typealias Original = @convention(thin) (UnownedJob) -> Void
    private typealias Hook = @convention(thin) (UnownedJob, Original) -> Void

    /// The executor of code without an executor: two null words.
    static var generic: UnownedSerialExecutor { unsafeBitCast((0, 0), to: UnownedSerialExecutor.self) }

    /// Jobs of simulated threads go to the workers of the simulation.
    static func replace() {
        guard let symbol = dlsym(dlopen(nil, RTLD_LAZY), "swift_task_enqueueGlobal_hook") else {
            preconditionFailure("the Swift runtime has no hook for its global executor")
        }
        symbol.assumingMemoryBound(to: Hook?.self).pointee = { job, _ in
            Kernel.shared.dispatch.enqueue(job)
        }
    }
}
