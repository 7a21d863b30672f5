// Rules of the ledger:
//  1. Each read has an entry, which is added before the read is passed to the core. The core identifies the
//     read by its ticket, and the delegate by its tag.
//  2. An entry is removed when its read completes or fails. The remaining entries of a closed connection are
//     removed when the next connection starts or, if no other connection is started, when the close is
//     delivered.
//  3. `begin` is called before and after the core starts a connection. Therefore, if another thread delivers
//     the close of the old connection in between, no entries of the new connection are cleared.

internal import Foundation
internal import SocketBuffers

/// The reads that are pending in the core, with their tags and the caller's buffers.
///
/// The core cannot read into an `NSMutableData`, so the bytes are copied when the read completes.
struct ReadLedger {
    struct Entry {
        let ticket: Int
        let tag: Int
        let buffer: NSMutableData?
        let offset: Int
        /// The buffer's length when the read was queued. The buffer never shrinks below this length.
        let originalLength: Int

        func store(_ data: Data) {
            guard let buffer else { return }
            let end = offset + data.count
            buffer.length = max(end, originalLength)
            // Foundation's `replaceBytes(in:withBytes:)` on Linux inserts the bytes instead (as tested with
            // Swift 6.3).
            let room = UnsafeMutableRawBufferPointer(start: buffer.mutableBytes + offset, count: data.count)
            data.copyBytes(to: room)
        }
    }

    /// A class, because a ring must not be copied. Used only under the lock.
    private final class State {
        var entries = Ring<Entry>()
        var nextTicket = 0
        var epoch = 0

        /// Finds a ticket. It is at the front, unless two threads read concurrently.
        func position(of ticket: Int) -> Int? {
            (0..<entries.count).first { entries[$0]?.pointee.ticket == ticket }
        }

        /// Removes all entries. The caller releases them outside the lock, because the buffers belong to user
        /// code.
        func takeAll() -> [Entry] {
            var taken: [Entry] = []
            while let entry = entries.popFirst() { taken.append(entry) }
            return taken
        }
    }

    private let state = Locked(State())

    var count: Int { state.withLock { $0.entries.count } }

    func append(tag: Int, buffer: NSMutableData?, offset: Int) -> Int {
        let length = buffer?.length ?? 0
        return state.withLock { state in
            state.nextTicket += 1
            state.entries.append(
                Entry(ticket: state.nextTicket, tag: tag, buffer: buffer, offset: offset, originalLength: length))
            return state.nextTicket
        }
    }

    func take(_ ticket: Int) -> Entry? {
        state.withLock { state in state.position(of: ticket).flatMap { state.entries.remove(at: $0) } }
    }

    func tag(of ticket: Int) -> Int? {
        state.withLock { state in state.position(of: ticket).flatMap { state.entries[$0]?.pointee.tag } }
    }

    // MARK: - Connections

    var epoch: Int { state.withLock { $0.epoch } }

    /// Starts a new connection (rule 3).
    func begin(clears: Bool) {
        let dropped = state.withLock { state in
            state.epoch += 1
            return clears ? state.takeAll() : []
        }
        withExtendedLifetime(dropped) {}
    }

    /// Removes all entries after a close, unless another connection has started since `epoch`.
    func end(at epoch: Int) {
        let dropped = state.withLock { state in state.epoch == epoch ? state.takeAll() : [] }
        withExtendedLifetime(dropped) {}
    }
}
