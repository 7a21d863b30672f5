// Rules of the ledger:
//  1. Each read that the core accepts has an entry, from before the core gets it. The core knows the read by
//     its ticket, and the delegate by its tag.
//  2. An entry leaves with its read. Those of a connection that has ended leave with the next connection or,
//     without one, with the end.
//  3. `begin` is called before and after the core takes up a connection: an end that comes meanwhile, on
//     another thread, then clears nothing of the new one.

internal import Foundation
internal import SocketBuffers

/// The reads that the core has not answered yet: their tags, and the memory of the caller that they fill.
///
/// The core has no `NSMutableData` to read into, and brings the bytes: they are copied when the read is over.
struct ReadLedger {
    struct Entry {
        let ticket: Int
        let tag: Int
        let buffer: NSMutableData?
        let offset: Int
        /// The length of the buffer when the read was asked for: it never shrinks below that.
        let originalLength: Int

        /// Puts the bytes where the caller wants them.
        func store(_ data: Data) {
            guard let buffer else { return }
            let end = offset + data.count
            buffer.length = max(end, originalLength)
            // `replaceBytes(in:withBytes:)` of Foundation on Linux inserts them (tried with Swift 6.3).
            let room = UnsafeMutableRawBufferPointer(start: buffer.mutableBytes + offset, count: data.count)
            data.copyBytes(to: room)
        }
    }

    /// A class, since a ring is never copied. Only used under the lock.
    private final class State {
        var entries = Ring<Entry>()
        var nextTicket = 0
        var epoch = 0

        /// The position of a ticket: the front, unless two threads read at once.
        func position(of ticket: Int) -> Int? {
            (0..<entries.count).first { entries[$0]?.pointee.ticket == ticket }
        }

        /// Takes all out. Their memory is the caller's, so that they go outside of the lock.
        func takeAll() -> [Entry] {
            var taken: [Entry] = []
            while let entry = entries.popFirst() { taken.append(entry) }
            return taken
        }
    }

    private let state = Locked(State())

    /// Adds a read; returns its ticket.
    func append(tag: Int, buffer: NSMutableData?, offset: Int) -> Int {
        let length = buffer?.length ?? 0
        return state.withLock { state in
            state.nextTicket += 1
            state.entries.append(
                Entry(ticket: state.nextTicket, tag: tag, buffer: buffer, offset: offset, originalLength: length))
            return state.nextTicket
        }
    }

    /// Takes out the read of a ticket.
    func take(_ ticket: Int) -> Entry? {
        state.withLock { state in state.position(of: ticket).flatMap { state.entries.remove(at: $0) } }
    }

    /// The tag of a read.
    func tag(of ticket: Int) -> Int? {
        state.withLock { state in state.position(of: ticket).flatMap { state.entries[$0]?.pointee.tag } }
    }

    // MARK: - Connections

    var epoch: Int { state.withLock { $0.epoch } }

    /// A connection begins, by rule 3.
    func begin(clears: Bool) {
        let dropped = state.withLock { state in
            state.epoch += 1
            return clears ? state.takeAll() : []
        }
        withExtendedLifetime(dropped) {}
    }

    /// The connection has ended, and no other had begun at `epoch`.
    func end(at epoch: Int) {
        let dropped = state.withLock { state in state.epoch == epoch ? state.takeAll() : [] }
        withExtendedLifetime(dropped) {}
    }
}
