internal import CLinux
package import Dispatch

/// What an event loop has to tell the owner of a registration.
package struct LoopEvents: OptionSet, Hashable, Sendable {
    package let rawValue: UInt32

    package init(rawValue: UInt32) {
        self.rawValue = rawValue
    }

    /// There may be bytes, or a connection to accept.
    package static let readable = LoopEvents(rawValue: 1 << 0)
    /// There may be room for bytes, or a connection attempt has ended.
    package static let writable = LoopEvents(rawValue: 1 << 1)
    /// The peer's FIN has arrived (`EPOLLRDHUP`): read on until zero.
    package static let readHangup = LoopEvents(rawValue: 1 << 2)
    /// The connection is gone in both directions, or has an error (`EPOLLHUP`, `EPOLLERR`).
    package static let hangup = LoopEvents(rawValue: 1 << 3)
    /// The deadline of the registration has passed.
    package static let deadline = LoopEvents(rawValue: 1 << 4)
    /// The turn that was asked for with `resume(_:)`.
    package static let resumed = LoopEvents(rawValue: 1 << 5)
    /// Urgent data is on its way (`EPOLLPRI`): a recv stops before it, whatever stands behind.
    package static let urgent = LoopEvents(rawValue: 1 << 6)

    // In place of `SetAlgebra`'s, which look the type up at run time when another module calls them.

    package func contains(_ events: LoopEvents) -> Bool {
        rawValue & events.rawValue == events.rawValue
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

/// Who is told about events. The loop holds it strongly from `register` to `deregister`.
package protocol EventHandler: AnyObject, Sendable {
    /// Called on the loop, with no lock held. Bounded: a handler with more to do asks for another turn with
    /// `resume(_:)`.
    func handle(_ events: LoopEvents)
}

/// What an event loop can watch. Its owner closes it, after it has left the loop.
package protocol LoopDescriptor: AnyObject {
    var rawValue: CInt { get }
}

/// Something to be run on a queue when a loop has handled its batch of events.
package protocol BatchedWork: AnyObject, Sendable {
    /// On the loop, just before it is put on the queue: what belongs to it, as a number for `run(upTo:on:)`.
    func takeTicket() -> Int
    /// On `queue`.
    func run(upTo ticket: Int, on queue: DispatchQueue)
}

/// A place in the table of an event loop. Stale ones are recognised by their generation and ignored.
package struct LoopRegistration: Hashable, Sendable {
    let index: UInt32
    let generation: UInt32

    init(index: UInt32, generation: UInt32) {
        self.index = index
        self.generation = generation
    }

    /// The 64 bits that an epoll event carries: never a pointer and never a descriptor, since descriptors are
    /// reused.
    init(eventData: UInt64) {
        self.init(index: UInt32(truncatingIfNeeded: eventData), generation: UInt32(truncatingIfNeeded: eventData >> 32))
    }

    var eventData: UInt64 { UInt64(generation) << 32 | UInt64(index) }
}
