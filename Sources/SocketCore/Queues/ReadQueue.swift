package import FoundationEssentials
package import SocketBuffers

/// The queued reads of a connection.
package struct ReadQueue: ~Copyable {
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
        /// So many bytes are there without the delimiter, or more before the end.
        case maxedOut(Int)
    }

    package var isEmpty: Bool { packets.isEmpty }

    package var front: Front {
        if packets.front != nil { return .read }
        return packets.isAtStartTLS ? .startTLS : .nothing
    }

    package mutating func append(_ packet: consuming ReadPacket) {
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

    /// False when nothing can be served: no byte is there, and the read at the front, if there is one, wants
    /// some.
    package func mayBeServed(from buffer: PreBuffer) -> Bool {
        !buffer.isEmpty || packets.front?.pointee.total == 0
    }

    /// Offers the read at the front what is in `buffer`; nil when no read stands there.
    package mutating func serve(from buffer: PreBuffer) -> Answer? {
        guard let read = packets.front else { return nil }
        switch read.pointee.take(from: buffer) {
        case .complete(let data):
            let tag = read.pointee.tag
            packets.removeFront()
            return .complete(data, tag: tag)
        case .incomplete: return .incomplete
        case .maxedOut: return .maxedOut(read.pointee.maxLength)
        }
    }

    /// True when the read at the front is complete with the end of the stream.
    package var isAtReadToEnd: Bool {
        if case .end = packets.front?.pointee.goal { true } else { false }
    }

    /// The stream has ended in good order: the read to the end that is at the front is complete.
    package mutating func finishReadToEnd() -> (data: Data, tag: Int)? {
        guard isAtReadToEnd, let read = packets.front else { return nil }
        let result = (read.pointee.finish(), read.pointee.tag)
        packets.removeFront()
        return result
    }

    /// Gives up the read at the front, and takes what it has so far.
    package mutating func abandon(from buffer: PreBuffer) -> (bytesSoFar: Data, tag: Int)? {
        guard let read = packets.front else { return nil }
        let result = (read.pointee.takeIncomplete(from: buffer), read.pointee.tag)
        packets.removeFront()
        return result
    }

    /// The bytes that have come for the read at the front since the last call, and its tag; nil when there
    /// are none.
    package mutating func takeProgress(in buffer: PreBuffer) -> (count: Int, tag: Int)? {
        guard let read = packets.front, let count = read.pointee.newProgress(in: buffer) else { return nil }
        return (count, read.pointee.tag)
    }

    /// How far the read at the front has come; nil when no read stands there.
    package func progress(in buffer: PreBuffer) -> OperationProgress? {
        guard let read = packets.front else { return nil }
        return OperationProgress(tag: read.pointee.tag, bytesDone: read.pointee.bytesDone(in: buffer), total: read.pointee.total)
    }

    /// The seconds that the read at the front may take; nil when no read stands there.
    package var timeout: Double? {
        packets.front?.pointee.timeout
    }
}
