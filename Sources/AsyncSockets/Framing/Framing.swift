public import FoundationEssentials

/// A protocol's way of dividing a stream into frames, in both directions.
///
/// A framing is a value without state: the end of a frame must be recognizable from its bytes. The
/// methods may be called on an event loop, so they must return quickly and never block. Use it with
/// `AsyncSocket.frames(_:idleTimeout:)`, `readFrame(_:timeout:)` and `write(_:as:timeout:)`.
public protocol Framing: Sendable {
    /// The value that is sent and received.
    associatedtype Frame: Sendable

    /// The maximum length of a frame in bytes, including its delimiters, prefixes and other overhead. A
    /// longer frame closes the connection with `.readMaxedOut`.
    var maximumFrameLength: Int { get }

    /// Looks for a frame at the start of `bytes`, which contains all received bytes that are still unread.
    ///
    /// - Throws: `malformedFrame(_:)` with a description of the problem. The bytes stay unread.
    func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Frame>

    /// Appends the encoded bytes of `frame`.
    ///
    /// - Throws: `.badParameter` if the frame cannot be sent.
    func encode(_ frame: Frame, into bytes: inout Data) throws(AsyncSocketError)
}

/// The result of `Framing.decode(_:)`.
public enum FrameDecoding<Frame> {
    /// A frame, and its encoded length in bytes, including all overhead.
    case frame(Frame, length: Int)
    /// The frame is incomplete. `decode` is called again once at least that many bytes are available.
    case incomplete(minimumLength: Int)
}

extension FrameDecoding: Sendable where Frame: Sendable {}

/// Frames with a length prefix, an unsigned integer.
public struct LengthPrefixed<Length: FixedWidthInteger & UnsignedInteger & BitwiseCopyable & Sendable>: Framing {
    /// The maximum length of a frame in bytes, without its prefix.
    public let maxLength: Int
    /// The byte order of the prefix.
    public let order: FrameByteOrder

    /// Creates a framing with a length prefix.
    ///
    /// - Parameters:
    ///   - maxLength: The maximum length of a frame in bytes, without its prefix. Defaults to 1 MiB. If a
    ///     prefix announces a greater length, the connection closes before the frame is received.
    ///   - order: The byte order of the prefix. Defaults to network byte order.
    public init(maxLength: Int = 1 << 20, order: FrameByteOrder = .bigEndian) {
        self.order = order
        let most = Swift.min(Int(clamping: Length.max), .max - MemoryLayout<Length>.size)
        self.maxLength = Swift.min(Swift.max(maxLength, 0), most)
    }

    private var prefixLength: Int { MemoryLayout<Length>.size }

    /// The length of the prefix plus `maxLength`.
    public var maximumFrameLength: Int { prefixLength + maxLength }

    /// Returns the frame after the prefix.
    public func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Data> {
        guard let announced = bytes.integer(Length.self, at: 0, order: order) else {
            return .incomplete(minimumLength: prefixLength)
        }
        guard let count = Int(exactly: announced), count <= maxLength else { throw .frameTooLong("\(announced)", maxLength) }
        let end = prefixLength + count
        guard bytes.byteCount >= end else { return .incomplete(minimumLength: end) }
        return .frame(bytes.extracting(prefixLength..<end).withUnsafeBytes { Data($0) }, length: end)
    }

    /// Appends the length of `frame`, then `frame`.
    public func encode(_ frame: Data, into bytes: inout Data) throws(AsyncSocketError) {
        guard frame.count <= maxLength else { throw .frameTooLong("\(frame.count)", maxLength, fault: .caller) }
        try bytes.append(integer: Length(frame.count), order: order)
        bytes.append(frame)
    }
}

/// Frames that are terminated by a delimiter. The delimiter is not part of the frame.
public struct Delimited: Framing {
    /// The bytes that terminate a frame.
    public let delimiter: Data
    /// The maximum length of a frame in bytes, without its delimiter.
    public let maxLength: Int

    /// Creates a framing with a delimiter.
    ///
    /// - Parameters:
    ///   - delimiter: The bytes that terminate a frame: at least one byte.
    ///   - maxLength: The maximum length of a frame in bytes, without its delimiter. Defaults to 64 KiB.
    public init(by delimiter: Data, maxLength: Int = 64 * 1024) {
        precondition(!delimiter.isEmpty, "the delimiter is empty: pass at least one byte")
        self.delimiter = delimiter
        self.maxLength = Swift.min(Swift.max(maxLength, 0), .max - delimiter.count)
    }

    /// `maxLength` plus the length of the delimiter.
    public var maximumFrameLength: Int { maxLength + delimiter.count }

    /// Returns the bytes before the delimiter.
    public func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Data> {
        try decode(bytes, seen: 0)
    }

    /// - Parameter seen: The number of bytes that have already been searched.
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

    /// Appends `frame`, then the delimiter.
    public func encode(_ frame: Data, into bytes: inout Data) throws(AsyncSocketError) {
        guard frame.count <= maxLength else { throw .frameTooLong("\(frame.count)", maxLength, fault: .caller) }
        guard frame.firstRange(of: delimiter) == nil else { throw .badParameter(.write, "the frame contains the delimiter") }
        bytes.append(frame)
        bytes.append(delimiter)
    }
}

/// A framing that does not search the same bytes again each time more bytes arrive.
protocol ResumableFraming<Frame>: Framing {
    func decode(_ bytes: RawSpan, seen: Int) throws(AsyncSocketError) -> FrameDecoding<Frame>
}

extension Delimited: ResumableFraming {}

extension AsyncSocketError {
    /// Creates the error for bytes from the peer that violate the format, for `Framing.decode(_:)`.
    ///
    /// - Parameter message: A one-sentence description of the problem.
    public static func malformedFrame(_ message: String) -> AsyncSocketError {
        AsyncSocketError(.malformedFrame, fault: .peer, operation: .read, message: message)
    }

    static func frameTooLong(_ length: Int, maximum: Int) -> AsyncSocketError {
        AsyncSocketError(
            .readMaxedOut, fault: .peer, operation: .read,
            message: "a frame of \(length) bytes exceeds maximumFrameLength (\(maximum) bytes)")
    }

    static func frameTooLong(_ count: String, _ limit: Int, fault: TLSError.Fault = .peer) -> AsyncSocketError {
        AsyncSocketError(
            fault == .peer ? .readMaxedOut : .badParameter, fault: fault, operation: fault == .peer ? .read : .write,
            message: "a frame of \(count) bytes exceeds maxLength (\(limit) bytes): raise maxLength in the framing")
    }
}
