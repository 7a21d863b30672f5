internal import FoundationEssentials
internal import SocketBuffers

/// A queued read (`GCDAsyncReadPacket`): its goal, and the bytes received so far.
struct ReadPacket: WaitingPacket, Sendable {
    /// The condition that completes a read.
    enum Goal: Sendable {
        /// Any bytes are available.
        case anyBytes
        /// Exactly this many bytes have been received.
        case length(Int)
        /// These bytes have been received. They are part of the result.
        case delimiter(Data)
        /// The end of the stream has been reached. See `finish()`.
        case end
        /// Any bytes are available. They are lent to a delegate. See `ReadHalf.takeLoan()`.
        case loan
        /// Any bytes are available. They stay in the buffer.
        case arrival
        /// This many bytes have been received, at least one. They are copied and stay in the buffer.
        case peek(Int)
        /// The reader is done. It holds the result.
        case reader(BufferReader)
    }

    enum Answer {
        case complete(Data)
        case incomplete
        /// The read reached `maxLength` bytes without the delimiter, or exceeded it before the end of the
        /// stream.
        case maxedOut
        /// The reader found invalid bytes and consumed no bytes.
        case failed(any Error)
    }

    /// The goal without its payload. Comparing kinds is cheap, but matching a goal that contains a `Data`
    /// retains and releases the data.
    private enum Kind {
        case anyBytes, length, delimiter, end, loan, arrival, peek, reader
    }

    // Ordered to minimize the size: every connection with a waiting read has one.

    private let delimiter: Data
    /// For a read to a length and for a peek, that length. For other goals, the maximum number of bytes to
    /// deliver.
    private let limit: Int
    let timeout: Double
    /// The destination of the bytes. For a read to a length or to the end, it also holds the bytes received
    /// so far; for other goals, those bytes stay in the buffer. If `nil`, the read uses its own memory and
    /// has not taken any bytes yet.
    private var taken: ReadDestination?
    private let reader: BufferReader?
    /// Bytes already reported as partial progress.
    private var reported = 0
    let completion: Completion<Data>
    private let kind: Kind
    private var isSearching = false

    /// Creates a read. This is a function because the compiler would copy the result of an initializer.
    ///
    /// - Parameters:
    ///   - maxLength: The maximum number of bytes the read may deliver. A read to a length delivers exactly
    ///     that length.
    ///   - target: The caller's buffer and an offset in it, or `nil` to use the read's own memory.
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
        case .peek(let length): (.peek, length, Data(), nil)
        case .reader(let reader): (.reader, maxLength, Data(), reader)
        }
    }

    var maxLength: Int { limit }

    mutating func take(from buffer: PreBuffer) -> Answer {
        switch kind {
        case .anyBytes: takeAnyBytes(from: buffer)
        case .length: takeLength(from: buffer)
        case .delimiter: takeToDelimiter(from: buffer)
        case .end: takeUpToEnd(from: buffer)
        case .loan: .incomplete
        case .arrival: buffer.isEmpty ? .incomplete : .complete(Data())
        case .peek: buffer.count < limit ? .incomplete : .complete(Data(buffer.readableBytes.prefix(limit)))
        case .reader: read(from: buffer)
        }
    }

    /// Whether `take(from:)` would either complete the read or leave the buffer unchanged.
    func takesAllOrNothing(of buffer: PreBuffer) -> Bool {
        switch kind {
        case .anyBytes, .delimiter, .loan, .arrival, .peek, .reader: true
        case .length: buffer.count >= limit
        case .end: false
        }
    }

    var isLoan: Bool { kind == .loan }

    var isToEnd: Bool { kind == .end }

    var wantsNothing: Bool { kind == .length && limit == 0 }

    /// Returns the bytes of a read to the end. Called at the end of the stream.
    func finish() -> Data {
        taken?.data ?? Data()
    }

    /// Takes the bytes received so far, because the read will not be completed.
    mutating func takeIncomplete(from buffer: PreBuffer) -> Data {
        switch kind {
        case .anyBytes, .length, .end, .loan, .arrival, .peek, .reader: taken?.data ?? Data()
        case .delimiter: takeAll(buffer, bytesDone(in: buffer))
        }
    }

    /// Puts the bytes of a cancelled or late read back to the front of the buffer, for another read.
    func putBack(into buffer: PreBuffer) {
        taken?.data.withUnsafeBytes { buffer.prepend($0) }
    }

    /// Returns how many bytes the read already owns or could take from the buffer.
    func bytesDone(in buffer: PreBuffer) -> Int {
        switch kind {
        case .length, .end: taken?.count ?? 0
        case .anyBytes, .delimiter, .loan, .arrival, .peek, .reader: min(buffer.count, maxLength)
        }
    }

    /// Mutating, so that it is called in place and not on a copy of the packet.
    mutating func progress(in buffer: PreBuffer) -> OperationProgress {
        OperationProgress(
            tag: completion.tag, bytesDone: bytesDone(in: buffer), total: kind == .length || kind == .peek ? limit : nil)
    }

    /// Returns the number of bytes that have arrived since the last call, or `nil` if no bytes have arrived.
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

    private mutating func takeAll(_ buffer: PreBuffer, _ count: Int) -> Data {
        guard let taken else { return buffer.takeData(count) }
        taken.append(buffer, count)
        return taken.data
    }
}

/// Where the bytes of a read are stored: in the caller's buffer, or in memory that grows as bytes arrive and
/// is never preallocated to a length claimed by the peer.
///
/// A class, so that the bytes have one owner. With a second owner, each append would copy all earlier bytes.
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
    /// Removes and returns the first `count` bytes. The bytes are not copied if they are the whole content of
    /// the buffer and fill at least two thirds of a block.
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
