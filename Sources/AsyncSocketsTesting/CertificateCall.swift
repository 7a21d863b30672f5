internal import COpenSSL

/// The one way in which the authority calls OpenSSL: the thread's error queue is cleared before a call and drained after it.
enum CertificateCall {
    static func require<Value>(
        _ operation: String,
        or code: CertificateAuthorityError.Code = .openSSLFailed,
        _ message: @autoclosure () -> String = "OpenSSL failed.",
        _ body: () -> Value?
    ) throws(CertificateAuthorityError) -> Value {
        ERR_clear_error()
        let value = body()
        let stack = drainQueue()
        guard let value else {
            throw CertificateAuthorityError(code, message(), operation: operation, openSSLStack: stack)
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

    private static func drainQueue() -> [String] {
        var entries: [String] = []
        while true {
            let code = ERR_get_error()
            guard code != 0 else { return entries }
            entries.append(ERR_reason_error_string(code).map { String(cString: $0) } ?? "error \(code)")
        }
    }
}
