/// How a client treats a server that does not offer TLS. In each case the dialogue fails, and its
/// connection must be closed.
public enum StartTLSPolicy: Sendable, Hashable {
    /// TLS is required. The dialogue fails with `notOffered`.
    case required
    /// TLS is used if it is offered ("opportunistic security", RFC 7435). The dialogue fails with
    /// `notOffered` or `refused`, and `StartTLSError.allowsPlaintext` is `true`: the program may continue in
    /// plaintext over another connection. It is `false` if the server refused the connection itself. An
    /// attacker on the network can always make this happen.
    case opportunistic
    /// The server has TLSA records that were obtained securely, so it supports TLS (RFC 7672, section 2.2).
    /// The dialogue fails with `offerRemoved`.
    case promised

    func applied(to error: StartTLSError) -> StartTLSError {
        var error = error
        switch (self, error.code) {
        case (.promised, .notOffered):
            error.code = .offerRemoved
            error.message = "the server has TLSA records, so it supports TLS, but \(error.message)"
        case (.opportunistic, .notOffered): error.allowsPlaintext = true
        case (.opportunistic, .refused): error.allowsPlaintext = !error.refusesConnection
        default: break
        }
        return error
    }
}
