internal import SocketTLS

/// The one way in which the authority calls OpenSSL: `OpenSSLCall`, with errors of its own.
enum CertificateCall {
    static func require<Value>(
        _ operation: String,
        or code: CertificateAuthorityError.Code = .openSSLFailed,
        _ message: @autoclosure () -> String = "OpenSSL failed.",
        _ body: () -> Value?
    ) throws(CertificateAuthorityError) -> Value {
        let (value, errors) = OpenSSLCall.attempt(body)
        guard let value else {
            throw CertificateAuthorityError(code, message(), operation: operation, openSSLStack: errors.map(\.text))
        }
        return value
    }

    /// For the calls that answer something positive for success.
    static func requireSuccess(
        _ operation: String,
        or code: CertificateAuthorityError.Code = .openSSLFailed,
        _ message: @autoclosure () -> String = "OpenSSL failed.",
        _ body: () -> Int32
    ) throws(CertificateAuthorityError) {
        _ = try require(operation, or: code, message()) { body() > 0 ? true : nil }
    }
}
