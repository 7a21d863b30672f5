internal import FoundationEssentials
internal import SocketBuffers

/// Writes to be coalesced, from tasks or from the delegate. A separate object, because an idle connection
/// does not need it.
final class CollectedWrites {
    /// A write of the delegate.
    struct Part {
        let count: Int
        let timeout: Double
        let tag: Int
    }

    private static var partLimit: Int { 1024 }

    private let buffer = PreBuffer()
    /// The writes of the delegate. Empty if the bytes are from tasks.
    @exclusivity(unchecked) private(set) var parts: [Part] = []
    /// The number of bytes that can still be joined.
    @exclusivity(unchecked) private var room: Int
    /// The shortest timeout of the tasks' writes.
    @exclusivity(unchecked) private var timeout = -1.0

    init(limit: Int = 0) {
        room = limit
    }

    /// Returns the number of bytes, or 0 if they do not fit.
    func join(_ data: Data, timeout: Double, tag: Int) -> Int {
        let count = data.count
        guard count > 0, count <= room, count < WritePacket.smallLimit, parts.count < Self.partLimit else { return 0 }
        room -= count
        data.bytes.withUnsafeBytes { buffer.append($0) }
        parts.append(Part(count: count, timeout: timeout, tag: tag))
        return count
    }

    func append(_ bytes: UnsafeRawBufferPointer, _ more: UnsafeRawBufferPointer?, timeout: Double) {
        buffer.append(bytes)
        if let more { buffer.append(more) }
        if timeout >= 0 { self.timeout = self.timeout < 0 ? timeout : min(self.timeout, timeout) }
    }

    var bytes: UnsafeRawBufferPointer { buffer.readableBytes }

    func forEachPacket(_ body: (consuming WritePacket) -> Void) {
        var rest = Data(buffer.readableBytes)
        guard !parts.isEmpty else { return body(WritePacket(data: rest, timeout: timeout, completion: .answered)) }
        for part in parts {
            body(WritePacket(data: rest.prefix(part.count), timeout: part.timeout, completion: .delegate(tag: part.tag)))
            rest = rest.dropFirst(part.count)
        }
    }
}
