public import FoundationEssentials
public import SocketTLS

/// Reads the ClientHello at the start of a TLS connection, for programs that forward the connection to a
/// server chosen by name, without decrypting it.
///
/// ```swift
/// guard let start = try await client.readFrame(TLSClientHelloFraming(), timeout: .seconds(10)),
///     let backend = backends[start.hello.serverName?.lowercased() ?? ""]
/// else { return }
/// try await AsyncSocket.withConnection(to: backend.host, port: backend.port) { server in
///     try await server.write(start.bytes)
///     try await client.relay(with: server)
/// }
/// ```
///
/// Use it for the first read of a connection only: later records are encrypted.
public struct TLSClientHelloFraming: Framing {
    /// A client's first message.
    public struct Frame: Sendable, Hashable {
        /// The parameters that the client offers.
        public let hello: TLSClientHello
        /// The TLS records with the message, unchanged, to be forwarded.
        public let bytes: Data
    }

    /// Creates the framing.
    public init() {}

    /// 65,541 bytes: a message of at most 32 KiB, in records with little contents.
    public var maximumFrameLength: Int { TLSClientHello.maximumLength }

    /// Returns the message.
    ///
    /// - Throws: `.tls`, with the errors of `TLSClientHello.init(records:)`.
    public func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Frame> {
        do {
            switch try TLSClientHello.parse(bytes) {
            case .incomplete(let minimum): return .incomplete(minimumLength: minimum)
            case .complete(let hello, let length):
                let records = bytes.extracting(0..<length).withUnsafeBytes { Data($0) }
                return .frame(Frame(hello: hello, bytes: records), length: length)
            }
        } catch {
            throw AsyncSocketError(error, operation: .read)
        }
    }

    /// Appends the records of the message.
    public func encode(_ frame: Frame, into bytes: inout Data) {
        bytes.append(frame.bytes)
    }
}
