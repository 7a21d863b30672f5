import COpenSSL
import SocketTLS

/// A bare server for resumption: its tickets are valid for the lifetime of its context.
final class RawServer {
    private let context: OpaquePointer

    init(_ version: TLSProtocolVersion, pem: String) throws {
        guard let context = SSL_CTX_new(TLS_server_method()) else { throw TestFailure(what: "SSL_CTX_new") }
        self.context = context
        let wanted = Int(version == .tls12 ? TLS1_2_VERSION : TLS1_3_VERSION)
        SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, wanted, nil)
        SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, wanted, nil)
        let isUsed = RawPeer.readIdentity(pem) { certificate, key in
            SSL_CTX_use_certificate(context, certificate) == 1 && SSL_CTX_use_PrivateKey(context, key) == 1
        }
        guard isUsed else { throw TestFailure(what: "identity") }
    }

    deinit { SSL_CTX_free(context) }

    /// Uses session IDs instead of tickets.
    func issueNoTickets() {
        SSL_CTX_set_options(context, COpenSSL_noTicketOption())
    }

    var connection: OpaquePointer? { SSL_new(context) }
}
