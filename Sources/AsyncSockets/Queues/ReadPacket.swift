internal import FoundationEssentials
internal import SocketBuffers

/// One queued read (`GCDAsyncReadPacket`): what it waits for, and the bytes it has so far.
struct ReadPacket: WaitingPacket, Sendable {
    /// When a read is complete.
    enum Goal: Sendable {
        /// With the first bytes that are there.
        case anyBytes
        /// With exactly so many bytes.
        case length(Int)
        /// With the first occurrence of these bytes, which are part of the result.
        case delimiter(Data)
        /// With the end of the stream: see `finish()`.
        case end
        /// With the first bytes that are there, which a delegate borrows: see `ReadHalf.takeLoan()`.
        case loan
        /// As soon as bytes are there. They stay.
        case arrival
        /// When the reader has taken what it wants; it has the result.
        case reader(BufferReader)
    }

    /// The result of `take(from:)`.
    enum Answer {
        case complete(Data)
        case incomplete
        /// `maxLength` bytes came without the delimiter, or more came before the end.
        case maxedOut
        /// The reader has found a fault in the bytes, and taken none.
        case failed(any Error)
    }

    /// The goal without its payload: to look at it is free, while each look at a `Data` counts references.
    private enum Kind {
        case anyBytes, length, delimiter, end, loan, arrival, reader
    }

    // In an order that takes little room: every connection that waits has a read.

    /// The bytes that a read to a delimiter waits for.
    private let delimiter: Data
    /// How many bytes a read to a length waits for; of the others, the most bytes that they may deliver.
    private let limit: Int
    let timeout: Double
    /// Where the bytes go, with the bytes of a read to a length that have arrived; the other goals leave
    /// theirs in the buffer. Nil: memory of the read's own, and none so far.
    private var taken: ReadDestination?
    private let reader: BufferReader?
    /// Bytes seen by earlier calls, for partial progress.
    private var reported = 0
    /// Answered when the read ends.
    let completion: Completion<Data>
    private let kind: Kind
    private var isSearching = false

    /// A read. A function, since the compiler copies what an initializer has made.
    ///
    /// - Parameters:
    ///   - maxLength: The most bytes that the read may deliver. A read to a length delivers that many.
    ///   - target: The caller's buffer and the offset in it; nil: memory of the read's own.
    static func make(
        _ goal: consuming Goal, maxLength: Int = .max, timeout: Double, completion: consuming Completion<Data>,
        target: (buffer: ReadBuffer, offset: Int)? = nil
    ) -> ReadPacket {
        let (kind, limit, delimiter, reader) = parts(of: goal, maxLength)
        return ReadPacket(
            delimiter: delimiter, limit: limit, timeout: timeout, taken: target.map { ReadDestination(target: $0) },
            reader: reader, completion: completion, kind: kind)
    }

    @inline(__always)
    private static func parts(of goal: consuming Goal, _ maxLength: Int) -> (Kind, Int, Data, BufferReader?) {
        switch consume goal {
        case .anyBytes: (.anyBytes, maxLength, Data(), nil)
        case .length(let length): (.length, length, Data(), nil)
        case .delimiter(let bytes): (.delimiter, maxLength, bytes, nil)
        case .end: (.end, maxLength, Data(), nil)
        case .loan: (.loan, maxLength, Data(), nil)
        case .arrival: (.arrival, maxLength, Data(), nil)
        case .reader(let reader): (.reader, maxLength, Data(), reader)
        }
    }

    /// The most bytes that the read may deliver.
    var maxLength: Int { limit }

    /// Takes what the read needs out of the buffer.
    mutating func take(from buffer: PreBuffer) -> Answer {
        switch kind {
        case .anyBytes: takeAnyBytes(from: buffer)
        case .length: takeLength(from: buffer)
        case .delimiter: takeToDelimiter(from: buffer)
        case .end: takeUpToEnd(from: buffer)
        case .loan: .incomplete
        case .arrival: buffer.isEmpty ? .incomplete : .complete(Data())
        case .reader: read(from: buffer)
        }
    }

    /// True when `take(from:)` would complete the read, or leave the buffer as it is.
    func takesAllOrNothing(of buffer: PreBuffer) -> Bool {
        switch kind {
        case .anyBytes, .delimiter, .loan, .arrival, .reader: true
        case .length: buffer.count >= limit
        case .end: false
        }
    }

    /// True when a delegate borrows the bytes.
    var isLoan: Bool { kind == .loan }

    /// True when the read is complete with the end of the stream.
    var isToEnd: Bool { kind == .end }

    /// True when the read is complete without a byte.
    var wantsNothing: Bool { kind == .length && limit == 0 }

    /// The bytes of a read to the end, when the end has come.
    func finish() -> Data {
        taken?.data ?? Data()
    }

    /// Takes what the read has so far, when it will not be completed.
    mutating func takeIncomplete(from buffer: PreBuffer) -> Data {
        switch kind {
        case .anyBytes, .length, .end, .loan, .arrival, .reader: taken?.data ?? Data()
        case .delimiter: takeAll(buffer, bytesDone(in: buffer))
        }
    }

    /// Puts what the read has taken back to the front of the buffer: the read is cancelled or late, and
    /// another will read it.
    func putBack(into buffer: PreBuffer) {
        taken?.data.withUnsafeBytes { buffer.prepend($0) }
    }

    /// How many bytes the read has or sees in the buffer.
    func bytesDone(in buffer: PreBuffer) -> Int {
        switch kind {
        case .length, .end: taken?.count ?? 0
        case .anyBytes, .delimiter, .loan, .arrival, .reader: min(buffer.count, maxLength)
        }
    }

    /// Mutating, so that it is called where the packet is, and not with a copy of it.
    mutating func progress(in buffer: PreBuffer) -> OperationProgress {
        OperationProgress(
            tag: completion.tag, bytesDone: bytesDone(in: buffer), total: kind == .length ? limit : nil)
    }

    /// The bytes that came since the last call, once; nil when there are none.
    mutating func newProgress(in buffer: PreBuffer) -> Int? {
        let done = bytesDone(in: buffer)
        guard done > reported else { return nil }
        defer { reported = done }
        return done - reported
    }

    private mutating func takeAnyBytes(from buffer: PreBuffer) -> Answer {
        guard !buffer.isEmpty else { return .incomplete }
        return .complete(takeAll(buffer, min(buffer.count, maxLength)))
    }

    private mutating func takeLength(from buffer: PreBuffer) -> Answer {
        let count = taken?.count ?? 0
        if count == 0, buffer.count >= limit { return .complete(takeAll(buffer, limit)) }
        guard !buffer.isEmpty else { return .incomplete }
        let taken = taken ?? ReadDestination()
        self.taken = taken
        taken.append(buffer, min(limit - count, buffer.count))
        return taken.count == limit ? .complete(taken.data) : .incomplete
    }

    private mutating func takeToDelimiter(from buffer: PreBuffer) -> Answer {
        if !isSearching {
            buffer.restartSearch()
            isSearching = true
        }
        if let end = delimiter.withUnsafeBytes({ buffer.endOfFirst($0) }) {
            return end <= maxLength ? .complete(takeAll(buffer, end)) : .maxedOut
        }
        return buffer.count >= maxLength ? .maxedOut : .incomplete
    }

    private mutating func takeUpToEnd(from buffer: PreBuffer) -> Answer {
        guard buffer.count <= maxLength - (taken?.count ?? 0) else { return .maxedOut }
        guard !buffer.isEmpty else { return .incomplete }
        let taken = taken ?? ReadDestination()
        self.taken = taken
        taken.append(buffer, buffer.count)
        return .incomplete
    }

    private mutating func read(from buffer: PreBuffer) -> Answer {
        if !isSearching {
            buffer.restartSearch()
            reader?.restart()
            isSearching = true
        }
        return switch reader?.look(at: buffer) {
        case .done: .complete(Data())
        case .failed(let error): .failed(error)
        case .incomplete: buffer.count >= limit ? .maxedOut : .incomplete
        case nil: .incomplete
        }
    }

    /// The whole of a read at once.
    private mutating func takeAll(_ buffer: PreBuffer, _ count: Int) -> Data {
        guard let taken else { return buffer.takeData(count) }
        taken.append(buffer, count)
        return taken.data
    }
}

/// Where the bytes of a read go: into memory of its own, which grows with what arrives and never with what
/// was announced, or into the caller's buffer.
///
/// A class, so that the bytes have one owner: with a second one each piece would copy all that came before.
private final class ReadDestination: @unchecked Sendable {
    // Unchecked: it belongs to one read.
    private let target: (buffer: ReadBuffer, offset: Int)?
    private var own = Data()
    private(set) var count = 0

    init(target: (buffer: ReadBuffer, offset: Int)? = nil) {
        self.target = target
    }

    var data: Data {
        if let target { target.buffer.view(at: target.offset, count: count) } else { own }
    }

    func append(_ source: PreBuffer, _ count: Int) {
        guard count > 0 else { return }
        let bytes = UnsafeRawBufferPointer(rebasing: source.readableBytes.prefix(count))
        if let target { target.buffer.store(bytes, at: target.offset + self.count) } else { own.append(contentsOf: bytes) }
        self.count += count
        source.consume(count)
    }
}

extension PreBuffer {
    /// The first `count` bytes, taken out; bytes of a nearly full block are not copied.
    func takeData(_ count: Int) -> Data {
        if count >= PreBuffer.leastGivenAway, let taken = takeBlock(count) {
            return Data(bytesNoCopy: taken.start, count: count, deallocator: .custom { _, _ in taken.giveBack() })
        }
        guard count > 0, let bytes = readableBytes.baseAddress else { return Data() }
        let data = Data(bytes: bytes, count: count)
        consume(count)
        return data
    }
}
