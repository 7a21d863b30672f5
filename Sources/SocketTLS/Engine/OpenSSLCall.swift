// All OpenSSL functions that can fail are called through this type. OpenSSL's error queue belongs to the
// thread and outlives a call: a stale entry would turn a later "no bytes yet" into a fatal error. Rules:
//  1. The queue is cleared before the call.
//  2. `SSL_get_error` is called immediately, because it reads BIO flags that the next call changes.
//  3. The queue is drained after a failed call, on the same thread, before any other code runs. Entries that
//     a successful call may leave are cleared before the next call. Checking the queue a second time for each
//     record took 2% of the instructions of an echo.

internal import COpenSSL

package enum OpenSSLCall {
    /// Evaluated once, before the process's first call.
    private static let keepsMemoryAtExit = COpenSSL_keepMemoryAtExit() == 1

    /// Runs a call that can fail. Returns its value and OpenSSL's error queue.
    package static func attempt<Value>(_ body: () -> Value?) -> (value: Value?, errors: [OpenSSLError]) {
        _ = keepsMemoryAtExit
        OpenSSLError.clearQueue()
        let value = body()
        return (value, OpenSSLError.drainQueue())
    }

    /// Runs a call that returns `nil` on failure. In that case, throws `code` with OpenSSL's error queue.
    static func require<Value>(
        _ operation: String,
        or code: TLSError.Code,
        _ message: @autoclosure () -> String,
        _ body: () -> Value?
    ) throws(TLSError) -> Value {
        let (value, errors) = attempt(body)
        guard let value else {
            throw TLSError(code, message(), operation: operation, openSSLStack: errors.map(\.text))
        }
        return value
    }

    /// Runs a call that returns a positive number on success. Otherwise, throws `code` with OpenSSL's error
    /// queue.
    static func requireSuccess(
        _ operation: String,
        or code: TLSError.Code = .internalError,
        _ message: @autoclosure () -> String = "OpenSSL failed to set up TLS",
        _ body: () -> Int32
    ) throws(TLSError) {
        _ = try require(operation, or: code, message()) { body() > 0 ? true : nil }
    }

    /// - Parameter mayLeaveErrors: Whether the call may succeed and leave errors, which the caller examines.
    static func perform(on ssl: OpaquePointer, mayLeaveErrors: Bool = false, _ body: () -> Int32) -> Answer {
        OpenSSLError.clearQueue()
        let result = body()
        if result > 0 {
            assert(
                mayLeaveErrors || ERR_peek_error() == 0,
                "a successful call left an error: \(OpenSSLError.drainQueue().map(\.text))")
            return .success
        }
        let reason = SSL_get_error(ssl, result)
        let entries = OpenSSLError.drainQueue()
        switch reason {
        case SSL_ERROR_WANT_READ: return .wantsRead
        case SSL_ERROR_WANT_WRITE: return .wantsWrite
        case SSL_ERROR_WANT_RETRY_VERIFY: return .wantsTrust
        case SSL_ERROR_WANT_X509_LOOKUP: return .wantsWork
        case SSL_ERROR_ZERO_RETURN: return .closed
        default: return .failure(entries)
        }
    }

    enum Answer {
        case success
        case wantsRead
        case wantsWrite
        case wantsTrust
        /// See `HandshakeWork`.
        case wantsWork
        case closed
        case failure([OpenSSLError])
    }
}

package struct OpenSSLError: Sendable {
    /// `ERR_GET_REASON`, which is an `SSL_R_*` if `isFromSSL`.
    let reason: Int32
    let library: Int32
    package let text: String

    /// Empties this thread's queue. The queue is nearly always empty, and `ERR_clear_error` visits all
    /// sixteen entries every time.
    static func clearQueue() {
        if ERR_peek_error() != 0 { ERR_clear_error() }
    }

    /// Removes and returns all entries of this thread's queue, oldest first.
    static func drainQueue() -> [OpenSSLError] {
        var entries: [OpenSSLError] = []
        var detail: UnsafePointer<CChar>?
        var flags: Int32 = 0
        while true {
            let code = ERR_get_error_all(nil, nil, nil, &detail, &flags)
            guard code != 0 else { return entries }
            entries.append(OpenSSLError(code: code, detail: flags & ERR_TXT_STRING != 0 ? detail : nil))
        }
    }

    private init(code: UInt, detail: UnsafePointer<CChar>?) {
        reason = ERR_GET_REASON(code)
        library = ERR_GET_LIB(code)
        let words = ERR_reason_error_string(code).map { String(cString: $0) } ?? "error \(code)"
        let extra = detail.map { String(cString: $0) } ?? ""
        text = extra.isEmpty ? words : "\(words) (\(extra))"
    }

    var isFromSSL: Bool { library == ERR_LIB_SSL }

    /// Whether memory or random numbers ran out.
    var isOfThisMachine: Bool {
        library == ERR_LIB_RAND || reason == COpenSSL_noMemoryReason()
    }

    /// Whether no provider has the algorithm.
    var isUnsupported: Bool { library == ERR_LIB_EVP && reason == COpenSSL_unsupportedReason() }

    var peerAlert: TLSAlert? {
        guard isFromSSL, reason > SSL_AD_REASON_OFFSET, reason <= SSL_AD_REASON_OFFSET + 255 else { return nil }
        return TLSAlert(rawValue: UInt8(reason - SSL_AD_REASON_OFFSET))
    }
}
