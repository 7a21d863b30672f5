internal import CLinux
package import Dispatch
package import Logging

/// Events that an event loop delivers to a handler.
package struct LoopEvents: OptionSet, Hashable, Sendable {
    package let rawValue: UInt32

    @inlinable
    package init(rawValue: UInt32) {
        self.rawValue = rawValue
    }

    /// There may be data to read, or a connection to accept.
    @inlinable package static var readable: LoopEvents { LoopEvents(rawValue: 1 << 0) }
    /// There may be room to write, or a connection attempt has finished.
    @inlinable package static var writable: LoopEvents { LoopEvents(rawValue: 1 << 1) }
    /// The peer has shut down its writing side (`EPOLLRDHUP`). Read until the end of the stream.
    @inlinable package static var readHangup: LoopEvents { LoopEvents(rawValue: 1 << 2) }
    /// The connection is broken in both directions or has an error (`EPOLLHUP`, `EPOLLERR`).
    @inlinable package static var hangup: LoopEvents { LoopEvents(rawValue: 1 << 3) }
    @inlinable package static var deadline: LoopEvents { LoopEvents(rawValue: 1 << 4) }
    /// A turn that was requested with `resume(_:)`.
    @inlinable package static var resumed: LoopEvents { LoopEvents(rawValue: 1 << 5) }
    /// Urgent data is pending (`EPOLLPRI`). A recv stops before it, even if more data follows.
    @inlinable package static var urgent: LoopEvents { LoopEvents(rawValue: 1 << 6) }

    // Replaces the method of `SetAlgebra`, which looks up the type at run time when called from another
    // module.

    @inlinable
    package func contains(_ events: LoopEvents) -> Bool {
        rawValue & events.rawValue == events.rawValue
    }

    /// Whether there are events other than `readable` and `writable`.
    package var isUnusual: Bool {
        rawValue & ~(Self.readable.rawValue | Self.writable.rawValue) != 0
    }

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
    /// Called on the loop, without any lock held. Calls must be short: a handler with more work requests
    /// another turn with `resume(_:)`.
    func handle(_ events: LoopEvents)
    /// Called on the loop, once for each `SocketEventLoop.whenCodeReturns(_:)`.
    func codeHasReturned()
    /// Identifies the handler in the log. May be read on any thread.
    var logMetadata: Logger.Metadata { get }
}

extension EventHandler {
    package func codeHasReturned() {}
    package var logMetadata: Logger.Metadata { ["handler": "\(Self.self)"] }
}

/// A descriptor that an event loop can watch. Its owner must remove it from the loop before closing it.
package protocol LoopDescriptor: AnyObject {
    var rawValue: CInt { get }
}

/// Work that runs on a queue after a loop has handled its batch of events.
package protocol BatchedWork: AnyObject, Sendable {
    /// Called on the loop, just before the work is sent to its queue. Returns the amount of work as an
    /// argument for `run(upTo:on:)`.
    func takeTicket() -> Int
    /// Called on `queue`.
    func run(upTo ticket: Int, on queue: DispatchQueue)
}

/// An entry in the table of an event loop. The generation identifies stale registrations, which the loop
/// ignores.
package struct LoopRegistration: Hashable, Sendable {
    let index: UInt32
    let generation: UInt32

    init(index: UInt32, generation: UInt32) {
        self.index = index
        self.generation = generation
    }

    /// The 64 bits of user data in an epoll event. A descriptor number would not identify the registration,
    /// because the kernel reuses numbers.
    init(eventData: UInt64) {
        self.init(index: UInt32(truncatingIfNeeded: eventData), generation: UInt32(truncatingIfNeeded: eventData >> 32))
    }

    var eventData: UInt64 { UInt64(generation) << 32 | UInt64(index) }
}
