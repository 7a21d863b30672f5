internal import CLinux
internal import Dispatch
internal import Glibc
internal import SocketBuffers
internal import Synchronization

/// Reports signals sent to the process (signal(7)) until `end()`.
///
/// Several watches may exist at a time, even for the same signal. When the last watch for a signal is
/// stopped, the previous signal action is restored.
///
/// This does not use libdispatch's signal sources: a cancelled source keeps its signal handler, so the
/// process would ignore the signal afterwards.
package final class SignalWatch: Sendable {
    fileprivate let signals: Set<CInt>
    private let handler: @Sendable (CInt) -> Void

    /// Calls `handler` on a dispatch queue for each of `signals` that arrives. The kernel may merge
    /// identical signals that arrive in quick succession.
    ///
    /// - Throws: EINVAL for a number that is not a signal, for a signal that cannot be caught (SIGKILL,
    ///   SIGSTOP), and for a signal that indicates a program error, such as SIGSEGV.
    package init(_ signals: [CInt], handler: @escaping @Sendable (CInt) -> Void) throws(SystemError) {
        self.signals = Set(signals)
        self.handler = handler
        if let wrong = signals.first(where: { !Self.canBeWatched($0) }) {
            throw SystemError("sigaction", errno: EINVAL, detail: "signal \(wrong) cannot be handled: use another signal")
        }
        try watchedSignals.withLock { (watched) throws(SystemError) in try watched.add(self) }
    }

    private static func canBeWatched(_ signal: CInt) -> Bool {
        (1...64).contains(signal)
            && ![SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS].contains(signal)
    }

    /// Stops the watch. Does not wait for a handler call in progress.
    package func end() {
        watchedSignals.withLock { $0.remove(self) }
    }

    fileprivate func tell(_ arrived: UInt64) {
        for signal in signals.sorted() where arrived & signal.bit != 0 { handler(signal) }
    }
}

private let watchedSignals = Locked(WatchedSignals())
/// A bit for each signal that has arrived and has not been reported yet.
private let arrivedSignals = Atomic<UInt64>(0)
/// The `eventfd` that wakes the source.
private let signalBell = Atomic<CInt>(-1)

/// The active watches, protected by a lock.
private struct WatchedSignals {
    /// The signal actions before the first watch.
    private var previousActions: [CInt: sigaction] = [:]
    private var watches: [SignalWatch] = []
    /// Created with the first watch and then kept.
    private var source: (any DispatchSourceRead)?

    mutating func add(_ watch: SignalWatch) throws(SystemError) {
        if source == nil { source = try Self.makeSource() }
        for signal in watch.signals where previousActions[signal] == nil {
            var (action, previous) = (sigaction(), sigaction())
            action.__sigaction_handler.sa_handler = noteSignal
            action.sa_flags = CInt(SA_RESTART)
            guard sigaction(signal, &action, &previous) == 0 else { throw SystemError("sigaction") }
            previousActions[signal] = previous
        }
        watches.append(watch)
    }

    mutating func remove(_ watch: SignalWatch) {
        watches.removeAll { $0 === watch }
        for signal in watch.signals where !watches.contains(where: { $0.signals.contains(signal) }) {
            if var previous = previousActions.removeValue(forKey: signal) { sigaction(signal, &previous, nil) }
        }
    }

    private static func makeSource() throws(SystemError) -> any DispatchSourceRead {
        let bell = eventfd(0, CInt(EFD_CLOEXEC) | CInt(EFD_NONBLOCK))
        guard bell >= 0 else { throw SystemError("eventfd") }
        signalBell.store(bell, ordering: .releasing)
        // The first use allocates memory, which is not allowed in a signal handler.
        _ = arrivedSignals.load(ordering: .relaxed)
        let source = DispatchSource.makeReadSource(fileDescriptor: bell, queue: .global())
        source.setEventHandler {
            var count: UInt64 = 0
            _ = read(bell, &count, 8)
            let arrived = arrivedSignals.exchange(0, ordering: .acquiringAndReleasing)
            for watch in watchedSignals.withLock({ $0.watches }) { watch.tell(arrived) }
        }
        source.activate()
        return source
    }
}

/// The signal handler, in which few functions are allowed (signal-safety(7)). It records the signal and
/// wakes the source.
private func noteSignal(_ signal: CInt) {
    let saved = errno
    arrivedSignals.bitwiseOr(signal.bit, ordering: .releasing)
    var one: UInt64 = 1
    _ = write(signalBell.load(ordering: .relaxed), &one, 8)
    errno = saved
}

extension CInt {
    fileprivate var bit: UInt64 { 1 << UInt64(self - 1) }
}
