package import FoundationEssentials
package import SocketBuffers

/// The queued reads of a connection.
package struct ReadQueue {
    private var packets = PacketQueue<ReadPacket>()

    package init() {}

    /// What stands at the front.
    package enum Front {
        case read
        case startTLS
        case nothing
    }

    /// What became of the read at the front when it was offered the bytes that are there.
    package enum Answer {
        /// The read is done, and gone from the queue.
        case complete(Data, tag: Int)
        case incomplete
        /// So many bytes are there without the delimiter.
        case maxedOut(Int)
    }

    package var isEmpty: Bool { packets.isEmpty }

    package var front: Front {
        if packets.hasPacket(at: 0) { return .read }
        return packets.isAtStartTLS ? .startTLS : .nothing
    }

    package mutating func append(_ packet: ReadPacket) {
        packets.append(packet)
    }

    package mutating func appendStartTLS() {
        packets.appendStartTLS()
    }

    package mutating func removeStartTLS() {
        packets.removeStartTLS()
    }

    package mutating func removeAll() {
        packets.removeAll()
    }

    /// Offers the read at the front what is in `buffer`; nil when no read stands there.
    package mutating func serve(from buffer: PreBuffer) -> Answer? {
        guard let tag = packets[0]?.tag, let answer = packets[0]?.take(from: buffer) else { return nil }
        switch answer {
        case .complete(let data):
            packets.removeFront()
            return .complete(data, tag: tag)
        case .incomplete: return .incomplete
        case .maxedOut: return .maxedOut(packets[0]?.maxLength ?? 0)
        }
    }

    /// Gives up the read at the front, and takes what it has so far.
    package mutating func abandon(from buffer: PreBuffer) -> (bytesSoFar: Data, tag: Int)? {
        guard let tag = packets[0]?.tag, let bytesSoFar = packets[0]?.takeIncomplete(from: buffer) else { return nil }
        packets.removeFront()
        return (bytesSoFar, tag)
    }

    /// The bytes that have come for the read at the front since the last call, and its tag; nil when there are none.
    package mutating func takeProgress(in buffer: PreBuffer) -> (count: Int, tag: Int)? {
        guard let count = packets[0]?.newProgress(in: buffer), let tag = packets[0]?.tag else { return nil }
        return (count, tag)
    }

    /// How far the read at the front has come; nil when no read stands there.
    package func progress(in buffer: PreBuffer) -> OperationProgress? {
        guard let tag = packets[0]?.tag, let bytesDone = packets[0]?.bytesDone(in: buffer) else { return nil }
        return OperationProgress(tag: tag, bytesDone: bytesDone, total: packets[0]?.total)
    }

    /// The seconds that the read at the front may take; nil when no read stands there.
    package var timeout: Double? {
        packets[0]?.timeout
    }
}
