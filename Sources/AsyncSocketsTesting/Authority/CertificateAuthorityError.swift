internal import SocketTLS

/// An error in generating or writing a certificate.
public struct CertificateAuthorityError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure.
    public var code: Code
    /// A one-sentence description of the failure.
    public var message: String
    /// The OpenSSL or system function that failed.
    public var operation: String
    /// The system's error number, if a file could not be written.
    public var errorNumber: Int32?
    /// OpenSSL's error queue, oldest entry first.
    public var openSSLStack: [String]

    init(_ code: Code, _ message: String, operation: String, errorNumber: Int32? = nil, openSSLStack: [String] = []) {
        self.code = code
        self.message = message
        self.operation = operation
        self.errorNumber = errorNumber
        self.openSSLStack = openSSLStack
    }

    /// The message, the code, the operation and OpenSSL's error queue.
    public var description: String {
        "\(message) [\(code); \(([operation] + openSSLStack).joined(separator: "; "))]"
    }

    /// The kind of failure. New kinds may be added, so a switch needs a `default`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the constant.
        public let description: String

        /// A name given by the caller is not allowed in a certificate.
        public static let invalidName = Code(description: "invalidName")
        /// A certificate, key or signing request cannot be decoded.
        public static let unreadable = Code(description: "unreadable")
        /// A certificate and its key cannot be used as an authority.
        public static let invalidAuthority = Code(description: "invalidAuthority")
        /// A file or directory could not be written: see `errorNumber`.
        public static let fileNotWritten = Code(description: "fileNotWritten")
        /// OpenSSL failed: see `openSSLStack`.
        public static let openSSLFailed = Code(description: "openSSLFailed")
    }
}

/// Calls OpenSSL through `OpenSSLCall` and converts errors to `CertificateAuthorityError`.
enum CertificateCall {
    static func require<Value>(
        _ operation: String,
        or code: CertificateAuthorityError.Code = .openSSLFailed,
        _ message: @autoclosure () -> String = "OpenSSL failed",
        _ body: () -> Value?
    ) throws(CertificateAuthorityError) -> Value {
        let (value, errors) = OpenSSLCall.attempt(body)
        guard let value else {
            throw CertificateAuthorityError(code, message(), operation: operation, openSSLStack: errors.map(\.text))
        }
        return value
    }

    /// For functions that return a positive number on success.
    static func requireSuccess(
        _ operation: String,
        or code: CertificateAuthorityError.Code = .openSSLFailed,
        _ message: @autoclosure () -> String = "OpenSSL failed",
        _ body: () -> Int32
    ) throws(CertificateAuthorityError) {
        _ = try require(operation, or: code, message()) { body() > 0 ? true : nil }
    }
}
