import AsyncSocketsTesting
import COpenSSL
import Glibc
import SocketTLS

/// A bare server that staples an OCSP response, or nothing. OpenSSL 3.6 and newer staple only responses that
/// they can decode, with the serial number and the issuer's name of the server's certificate.
final class StaplingServer {
    private let context: OpaquePointer
    private let response: [UInt8]?
    /// Bytes that replace the response in TLS 1.2, where it is not encrypted.
    var replacement: [UInt8]?

    init(_ leaf: HandmadeCertificate, chain: [HandmadeCertificate], response: [UInt8]?) throws {
        guard let context = SSL_CTX_new(TLS_server_method()) else { throw TestFailure(what: "SSL_CTX_new") }
        self.context = context
        self.response = response
        guard SSL_CTX_use_certificate(context, leaf.x509) == 1, SSL_CTX_use_PrivateKey(context, leaf.key) == 1 else {
            throw TestFailure(what: "identity")
        }
        for certificate in chain { COpenSSL_CTX_addChainCertificate(context, certificate.x509) }
        COpenSSL_CTX_setStatusArgument(context, Unmanaged.passUnretained(self).toOpaque())
        COpenSSL_CTX_setStatusCallback(context) { ssl, server in
            guard let ssl, let server else { return SSL_TLSEXT_ERR_ALERT_FATAL }
            guard let response = Unmanaged<StaplingServer>.fromOpaque(server).takeUnretainedValue().response else {
                return SSL_TLSEXT_ERR_NOACK
            }
            return COpenSSL_setStatusResponse(ssl, response, response.count) == 1
                ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL
        }
    }

    deinit { SSL_CTX_free(context) }

    /// Returns the error of a client with these settings, or nil if the handshake completes.
    ///
    /// - Parameter decide: Makes the trust decision.
    func error(
        of settings: TLSClientSettings, _ decide: @escaping (PeerTrust) -> Bool = { _ in true }
    ) throws -> (error: TLSError?, alert: TLSAlert?) {
        switch try client(settings, decide).handshake() {
        case .failed(let error): return (error, error.sentAlert)
        case .complete: return (nil, nil)
        case .incomplete, .awaitingTrust, .awaitingSettings, .awaitingWork: throw TestFailure(what: "incomplete")
        }
    }

    /// Returns a client with these settings after its handshake.
    func client(
        _ settings: TLSClientSettings, _ decide: @escaping (PeerTrust) -> Bool = { _ in true }
    ) throws -> TLSEngine {
        let client = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
        let peer = try RawPeer(serving: SSL_new(context))
        if let response, let replacement {
            peer.replace(Self.message(response), by: Self.message(replacement))
        }
        peer.shakeHands(with: client, decide)
        return client
    }

    /// The record with the message CertificateStatus (RFC 6066, section 8).
    private static func message(_ response: [UInt8]) -> [UInt8] {
        Wire.record(22, Wire.message(22, [1] + Wire.vector(response, 3)))
    }
}

extension HandmadeCertificate {
    /// The contents of an OCSP response, and its signer.
    struct Answer {
        var status = V_OCSP_CERTSTATUS_GOOD
        /// The validity period in hours relative to now.
        var hours: Range<Int>? = -1..<24
        /// The end of the validity in seconds from now, or nil to use `hours`.
        var seconds: Int?
        /// The signer, or nil for the issuer itself.
        var responder: HandmadeCertificate?
        var digest = EVP_sha1()
        /// The issuer that the response names, or nil for the issuer itself.
        var issuer: HandmadeCertificate?
        /// Certificates that the response lists first, as good.
        var behind: [HandmadeCertificate] = []
    }

    /// Returns an OCSP response for `subject` from this CA.
    func response(about subject: HandmadeCertificate, _ answer: Answer = Answer()) throws -> [UInt8] {
        guard let basic = OCSP_BASICRESP_new() else { throw TestFailure(what: "OCSP_BASICRESP_new") }
        defer { OCSP_BASICRESP_free(basic) }
        let identifier = OCSP_cert_to_id(answer.digest, subject.x509, (answer.issuer ?? self).x509)
        let begin = X509_gmtime_adj(nil, (answer.hours?.lowerBound ?? -1) * 3600)
        let end = answer.hours.flatMap { X509_gmtime_adj(nil, answer.seconds ?? $0.upperBound * 3600) }
        defer {
            OCSP_CERTID_free(identifier)
            ASN1_STRING_free(begin)
            ASN1_STRING_free(end)
        }
        for other in answer.behind {
            let identifier = OCSP_cert_to_id(answer.digest, other.x509, x509)
            defer { OCSP_CERTID_free(identifier) }
            OCSP_basic_add1_status(basic, identifier, V_OCSP_CERTSTATUS_GOOD, 0, nil, begin, end)
        }
        let isRevoked = answer.status == V_OCSP_CERTSTATUS_REVOKED
        OCSP_basic_add1_status(
            basic, identifier, answer.status, OCSP_REVOKED_STATUS_KEYCOMPROMISE, isRevoked ? begin : nil, begin, end)
        let signer = answer.responder ?? self
        guard
            OCSP_basic_sign(basic, signer.x509, signer.key, EVP_sha256(), nil, UInt(answer.responder == nil ? OCSP_NOCERTS : 0))
                == 1,
            let response = OCSP_response_create(OCSP_RESPONSE_STATUS_SUCCESSFUL, basic)
        else { throw TestFailure(what: "OCSP: \(OpenSSLCallQueue.texts)") }
        defer { OCSP_RESPONSE_free(response) }
        var bytes = [UInt8](repeating: 0, count: Int(i2d_OCSP_RESPONSE(response, nil)))
        bytes.withUnsafeMutableBufferPointer { buffer in
            var cursor = buffer.baseAddress
            i2d_OCSP_RESPONSE(response, &cursor)
        }
        return bytes
    }
}
