import COpenSSL
import SocketTLS

/// A bare server that clients come back to: its tickets are good as long as its context lives.
final class RawServer {
    private let context: OpaquePointer

    init(_ version: TLSVersion, pem: String) throws {
        guard let context = SSL_CTX_new(TLS_server_method()) else { throw TestFailure(what: "SSL_CTX_new") }
        self.context = context
        let wanted = Int(version == .tls12 ? TLS1_2_VERSION : TLS1_3_VERSION)
        SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, wanted, nil)
        SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, wanted, nil)
        let (certificate, key) = Array(pem.utf8).withUnsafeBytes { bytes in
            let bio = BIO_new_mem_buf(bytes.baseAddress, Int32(bytes.count))
            defer { BIO_free(bio) }
            return (PEM_read_bio_X509(bio, nil, nil, nil), PEM_read_bio_PrivateKey(bio, nil, nil, nil))
        }
        defer {
            X509_free(certificate)
            EVP_PKEY_free(key)
        }
        guard SSL_CTX_use_certificate(context, certificate) == 1, SSL_CTX_use_PrivateKey(context, key) == 1 else {
            throw TestFailure(what: "identity")
        }
    }

    deinit { SSL_CTX_free(context) }

    /// Sessions by their identifiers, and no tickets.
    func issueNoTickets() {
        SSL_CTX_set_options(context, COpenSSL_noTicketOption())
    }

    var connection: OpaquePointer? { SSL_new(context) }
}
