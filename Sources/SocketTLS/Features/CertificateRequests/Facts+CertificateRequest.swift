internal import COpenSSL

extension Facts {
    /// A client can also receive a request after the handshake, which is not recorded.
    func noteCertificateRequest() {
        if !isEstablished { hasCertificateRequest = true }
    }

    /// Returns the server's request for a certificate, or `nil` on a server and on a client that has received
    /// no request during the handshake.
    func certificateRequest(on ssl: OpaquePointer) -> TLSClientCertificateRequest? {
        guard hasCertificateRequest else { return nil }
        let names = SSL_get0_peer_CA_list(ssl)
        return TLSClientCertificateRequest(
            authorities: (0..<COpenSSL_sk_X509_NAME_num(names)).map { index in
                TLSCertificate.text(of: COpenSSL_sk_X509_NAME_value(names, index))
            })
    }
}
