package import FoundationEssentials
package import SocketBuffers

/// One queued read (`GCDAsyncReadPacket`): what it waits for, and the bytes it has so far.
package struct ReadPacket: Sendable {
    /// When a read is complete.
    package enum Goal: Sendable {
        /// With the first bytes that are there.
        case anyBytes
        /// With exactly so many bytes.
        case length(Int)
        /// With the first occurrence of these bytes, which are part of the result.
        case delimiter(Data)
    }

    /// What `take(from:)` came to.
    package enum Answer {
        case complete(Data)
        case incomplete
        /// `maxLength` bytes are there and no delimiter among them.
        case maxedOut
    }

    package let goal: Goal
    /// The most bytes that the read may deliver; nil: no limit.
    package let maxLength: Int?
    package let timeout: Double
    package let tag: Int

    /// Bytes of a read to a length that have arrived; the other goals leave theirs in the buffer.
    private var taken = Data()
    /// Bytes seen by earlier calls, for the report of partial progress.
    private var reported = 0
    private var isSearching = false

    package init(goal: Goal, maxLength: Int? = nil, timeout: Double, tag: Int) {
        self.goal = goal
        self.maxLength = maxLength
        self.timeout = timeout
        self.tag = tag
    }

    /// Takes what the read needs out of the buffer.
    package mutating func take(from buffer: PreBuffer) -> Answer {
        switch goal {
        case .anyBytes: takeAnyBytes(from: buffer)
        case .length(let length): take(length: length, from: buffer)
        case .delimiter(let delimiter): take(to: delimiter, from: buffer)
        }
    }

    /// How many bytes the read has or sees in the buffer.
    package func bytesDone(in buffer: PreBuffer) -> Int {
        switch goal {
        case .length: taken.count
        case .anyBytes, .delimiter: buffer.count
        }
    }

    /// The bytes that came since the last call, once; nil when there are none.
    package mutating func newProgress(in buffer: PreBuffer) -> Int? {
        let done = bytesDone(in: buffer)
        guard done > reported else { return nil }
        defer { reported = done }
        return done - reported
    }

    private mutating func takeAnyBytes(from buffer: PreBuffer) -> Answer {
        guard !buffer.isEmpty else { return .incomplete }
        return .complete(buffer.takeData(min(buffer.count, maxLength ?? .max)))
    }

    private mutating func take(length: Int, from buffer: PreBuffer) -> Answer {
        let missing = length - taken.count
        if taken.isEmpty, buffer.count >= length { return .complete(buffer.takeData(length)) }
        let count = min(missing, buffer.count)
        if count > 0, let bytes = buffer.readableBytes.baseAddress {
            taken.append(bytes.assumingMemoryBound(to: UInt8.self), count: count)
            buffer.consume(count)
        }
        guard taken.count == length else { return .incomplete }
        return .complete(taken)
    }

    private mutating func take(to delimiter: Data, from buffer: PreBuffer) -> Answer {
        if !isSearching {
            buffer.restartSearch()
            isSearching = true
        }
        let limit = maxLength ?? .max
        if let end = delimiter.withUnsafeBytes({ buffer.endOfFirst($0) }) {
            return end <= limit ? .complete(buffer.takeData(end)) : .maxedOut
        }
        return buffer.count >= limit ? .maxedOut : .incomplete
    }
}

extension PreBuffer {
    /// The first `count` bytes, taken out.
    package func takeData(_ count: Int) -> Data {
        guard count > 0, let bytes = readableBytes.baseAddress else { return Data() }
        let data = Data(bytes: bytes, count: count)
        consume(count)
        return data
    }
}
