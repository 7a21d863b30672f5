internal import CLinux
package import Dispatch
package import Logging

/// The events that an event loop delivers to a handler.
package struct LoopEvents: OptionSet, Hashable, Sendable {
    package let rawValue: UInt32

    @inlinable
    package init(rawValue: UInt32) {
        self.rawValue = rawValue
    }

    /// There may be bytes, or a connection to accept.
    @inlinable package static var readable: LoopEvents { LoopEvents(rawValue: 1 << 0) }
    /// There may be room for bytes, or a connection attempt has ended.
    @inlinable package static var writable: LoopEvents { LoopEvents(rawValue: 1 << 1) }
    /// The peer's FIN has arrived (`EPOLLRDHUP`): read on until zero.
    @inlinable package static var readHangup: LoopEvents { LoopEvents(rawValue: 1 << 2) }
    /// The connection is broken in both directions, or has an error (`EPOLLHUP`, `EPOLLERR`).
    @inlinable package static var hangup: LoopEvents { LoopEvents(rawValue: 1 << 3) }
    /// The deadline of the registration has passed.
    @inlinable package static var deadline: LoopEvents { LoopEvents(rawValue: 1 << 4) }
    /// The turn that was asked for with `resume(_:)`.
    @inlinable package static var resumed: LoopEvents { LoopEvents(rawValue: 1 << 5) }
    /// Urgent data is on its way (`EPOLLPRI`): a recv stops before it, whatever follows.
    @inlinable package static var urgent: LoopEvents { LoopEvents(rawValue: 1 << 6) }

    // The one of `SetAlgebra` looks the type up at run time when another module calls it.

    @inlinable
    package func contains(_ events: LoopEvents) -> Bool {
        rawValue & events.rawValue == events.rawValue
    }

    /// Something besides bytes and room for bytes.
    package var isUnusual: Bool {
        rawValue & ~(Self.readable.rawValue | Self.writable.rawValue) != 0
    }

    /// What `epoll_wait` reported.
    init(epoll bits: UInt32) {
        var events: LoopEvents = []
        if bits & EPOLLIN.rawValue != 0 { events.insert(.readable) }
        if bits & EPOLLOUT.rawValue != 0 { events.insert(.writable) }
        if bits & EPOLLPRI.rawValue != 0 { events.insert(.urgent) }
        if bits & EPOLLRDHUP.rawValue != 0 { events.formUnion([.readable, .readHangup]) }
        if bits & (EPOLLHUP.rawValue | EPOLLERR.rawValue) != 0 {
            events.formUnion([.readable, .writable, .readHangup, .hangup])
        }
        self = events
    }
}

/// A handler of events. The loop keeps it alive from `register` to `deregister`.
package protocol EventHandler: AnyObject, Sendable {
    /// The loop calls it with no lock held. A call is short: a handler with more to do asks for another turn
    /// with `resume(_:)`.
    func handle(_ events: LoopEvents)
    /// On the loop, once for each `EventLoop.whenCodeReturns(_:)`.
    func codeHasReturned()
    /// Anywhere: how it appears in the log.
    var logMetadata: Logger.Metadata { get }
}

extension EventHandler {
    package func codeHasReturned() {}
    package var logMetadata: Logger.Metadata { ["handler": "\(Self.self)"] }
}

/// A descriptor that an event loop can watch. Its owner closes it after it has left the loop.
package protocol LoopDescriptor: AnyObject {
    var rawValue: CInt { get }
}

/// Work for a queue when a loop has handled its batch of events.
package protocol BatchedWork: AnyObject, Sendable {
    /// On the loop, just before the work goes to its queue: how much of it there is, for `run(upTo:on:)`.
    func takeTicket() -> Int
    /// On `queue`.
    func run(upTo ticket: Int, on queue: DispatchQueue)
}

/// An entry in the table of an event loop. The generation tells a stale one, which the loop ignores.
package struct LoopRegistration: Hashable, Sendable {
    let index: UInt32
    let generation: UInt32

    init(index: UInt32, generation: UInt32) {
        self.index = index
        self.generation = generation
    }

    /// The 64 bits that an epoll event carries. A descriptor would not do, since the kernel reuses its
    /// number.
    init(eventData: UInt64) {
        self.init(index: UInt32(truncatingIfNeeded: eventData), generation: UInt32(truncatingIfNeeded: eventData >> 32))
    }

    var eventData: UInt64 { UInt64(generation) << 32 | UInt64(index) }
}
