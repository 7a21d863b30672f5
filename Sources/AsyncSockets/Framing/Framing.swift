public import FoundationEssentials

/// How a protocol divides the stream into frames, both ways.
///
/// A value without state: what is needed to find the end of a frame is in the bytes. Its methods may be
/// called on an event loop, so they must be quick, and must not block. Use it with
/// `AsyncSocket.frames(_:idleTimeout:)`, `readFrame(_:timeout:)` and `write(_:as:timeout:)`.
public protocol Framing: Sendable {
    /// The value that is sent and received.
    associatedtype Frame: Sendable

    /// The most bytes that a frame may have, with all that is around it. A longer one ends the connection
    /// with `.readMaxedOut`.
    var maximumFrameLength: Int { get }

    /// Looks for a frame at the beginning of `bytes`: all that has come and was not read.
    ///
    /// - Throws: `malformedFrame(_:)`, which says what is wrong with the bytes. They stay unread.
    func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Frame>

    /// Appends the bytes of `frame`.
    ///
    /// - Throws: `.badParameter` for a frame that cannot be sent.
    func encode(_ frame: Frame, into bytes: inout Data) throws(AsyncSocketError)
}

/// What `Framing.decode(_:)` has found.
public enum FrameDecoding<Frame> {
    /// A frame, and how many bytes it has with all that is around it.
    case frame(Frame, length: Int)
    /// The frame is not complete. The next look comes when there are at least that many bytes.
    case incomplete(minimumLength: Int)
}

extension FrameDecoding: Sendable where Frame: Sendable {}

/// Frames with their length before them, as an unsigned integer.
public struct LengthPrefixed<Length: FixedWidthInteger & UnsignedInteger & BitwiseCopyable & Sendable>: Framing {
    /// The most bytes of a frame, without its prefix.
    public let maxLength: Int
    /// In which order the bytes of the prefix come.
    public let order: ByteOrder

    /// - Parameters:
    ///   - maxLength: The most bytes of a frame, without its prefix; 1 MiB by default. A frame that announces
    ///     more ends the connection before it is received.
    ///   - order: In which order the bytes of the prefix come: network byte order by default.
    public init(maxLength: Int = 1 << 20, order: ByteOrder = .bigEndian) {
        self.order = order
        let most = Swift.min(Int(clamping: Length.max), .max - MemoryLayout<Length>.size)
        self.maxLength = Swift.min(Swift.max(maxLength, 0), most)
    }

    private var prefixLength: Int { MemoryLayout<Length>.size }

    /// The prefix and `maxLength` bytes.
    public var maximumFrameLength: Int { prefixLength + maxLength }

    /// The frame behind the prefix.
    public func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Data> {
        guard let announced = bytes.integer(Length.self, at: 0, order: order) else {
            return .incomplete(minimumLength: prefixLength)
        }
        guard let count = Int(exactly: announced), count <= maxLength else { throw .frameTooLong("\(announced)", maxLength) }
        let end = prefixLength + count
        guard bytes.byteCount >= end else { return .incomplete(minimumLength: end) }
        return .frame(bytes.extracting(prefixLength..<end).withUnsafeBytes { Data($0) }, length: end)
    }

    /// The length of `frame`, and `frame`.
    public func encode(_ frame: Data, into bytes: inout Data) throws(AsyncSocketError) {
        guard frame.count <= maxLength else { throw .frameTooLong("\(frame.count)", maxLength, blame: .caller) }
        try bytes.append(integer: Length(frame.count), order: order)
        bytes.append(frame)
    }
}

/// Frames that end with a delimiter, which is not a part of them.
public struct Delimited: Framing {
    /// The bytes that end a frame.
    public let delimiter: Data
    /// The most bytes of a frame, without its delimiter.
    public let maxLength: Int

    /// - Parameters:
    ///   - delimiter: The bytes that end a frame: at least one.
    ///   - maxLength: The most bytes of a frame, without its delimiter; 64 KiB by default.
    public init(by delimiter: Data, maxLength: Int = 64 * 1024) {
        precondition(!delimiter.isEmpty, "a delimiter has at least one byte")
        self.delimiter = delimiter
        self.maxLength = Swift.min(Swift.max(maxLength, 0), .max - delimiter.count)
    }

    /// `maxLength` bytes and the delimiter.
    public var maximumFrameLength: Int { maxLength + delimiter.count }

    /// The bytes before the delimiter.
    public func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Data> {
        try decode(bytes, seen: 0)
    }

    /// The first `seen` bytes are searched already.
    func decode(_ bytes: RawSpan, seen: Int) throws(AsyncSocketError) -> FrameDecoding<Data> {
        let found = bytes.withUnsafeBytes { bytes -> (Data, Int)? in
            guard let start = bytes.baseAddress else { return nil }
            let data = Data(
                bytesNoCopy: UnsafeMutableRawPointer(mutating: start), count: bytes.count, deallocator: .none)
            let rest = Swift.min(Swift.max(seen - delimiter.count + 1, 0), data.count)..<data.count
            return data.firstRange(of: delimiter, in: rest).map { (Data(data[..<$0.lowerBound]), $0.upperBound) }
        }
        guard let (frame, end) = found else { return .incomplete(minimumLength: bytes.byteCount + 1) }
        guard frame.count <= maxLength else { throw .frameTooLong("\(frame.count)", maxLength) }
        return .frame(frame, length: end)
    }

    /// `frame` and the delimiter.
    public func encode(_ frame: Data, into bytes: inout Data) throws(AsyncSocketError) {
        guard frame.count <= maxLength else { throw .frameTooLong("\(frame.count)", maxLength, blame: .caller) }
        guard frame.firstRange(of: delimiter) == nil else { throw .badParameter("write", "the frame contains the delimiter") }
        bytes.append(frame)
        bytes.append(delimiter)
    }
}

/// A format that does not search the same bytes again with each arrival.
protocol ResumableFraming<Frame>: Framing {
    func decode(_ bytes: RawSpan, seen: Int) throws(AsyncSocketError) -> FrameDecoding<Frame>
}

extension Delimited: ResumableFraming {}

extension AsyncSocketError {
    /// The peer has sent bytes that the format does not allow: for `Framing.decode(_:)`.
    ///
    /// - Parameter message: One sentence that says what is wrong.
    public static func malformedFrame(_ message: String) -> AsyncSocketError {
        AsyncSocketError(.malformedFrame, blame: .peer, operation: "read", message: message)
    }

    fileprivate static func frameTooLong(_ count: String, _ limit: Int, blame: Blame = .peer) -> AsyncSocketError {
        AsyncSocketError(
            blame == .peer ? .readMaxedOut : .badParameter, blame: blame, operation: blame == .peer ? "read" : "write",
            message: "a frame of \(count) bytes is longer than maxLength, \(limit) bytes: raise it where the framing is made")
    }
}
