internal import COpenSSL

/// Text that OpenSSL writes into a BIO in memory.
enum PEMText {
    static func make(
        _ operation: String, write: (OpaquePointer) -> Int32
    ) throws(CertificateAuthorityError) -> String {
        let bio = try CertificateCall.require("BIO_new") { BIO_new(BIO_s_mem()) }
        defer { BIO_free(bio) }
        try CertificateCall.requireSuccess(operation) { write(bio) }
        let length = BIO_ctrl_pending(bio)
        return String(unsafeUninitializedCapacity: length) { text in
            Int(max(0, BIO_read(bio, text.baseAddress, Int32(length))))
        }
    }
}
