internal import COpenSSL

/// Limits the cost of deriving a key from a passphrase. The encrypted file itself specifies this cost (RFC
/// 8018, section 4.2).
enum KeyDerivation {
    /// The encryption scheme and cipher as NIDs (RFC 8018 for PBES2, RFC 7292, appendix C, for older
    /// schemes), and the number of key derivation rounds. scrypt has no rounds: OpenSSL limits its cost
    /// itself.
    typealias Algorithm = (scheme: Int32, cipher: Int32, rounds: Int)

    /// The maximum total for all parts of a file. This many rounds take about a second. Programs use 1 to
    /// 1,000,000 rounds.
    private static let roundLimit = 10_000_000

    /// Throws `invalidPrivateKey` if a file requires too many rounds.
    ///
    /// - Parameters:
    ///   - rounds: The number of rounds, or `nil` for a negative number.
    ///   - source: The name of the file in error messages.
    static func check(_ rounds: Int?, _ source: String, operation: String) throws(TLSError) {
        guard let rounds, rounds <= roundLimit else {
            let count = rounds.map { "\($0)" } ?? "an invalid number of"
            throw TLSError(
                .invalidPrivateKey,
                "\(source) uses \(count) rounds of key derivation, but at most \(roundLimit) are accepted",
                operation: operation)
        }
    }

    /// Returns `nil` if a number is negative.
    static func sum(_ rounds: [Int]) -> Int? {
        rounds.contains { $0 < 0 } ? nil : rounds.reduce(0) { $0.addingReportingOverflow($1).overflow ? .max : $0 + $1 }
    }

    /// Returns the rounds of an encrypted private key (PKCS#8) in DER, or 0 for any other data.
    static func rounds(ofKey bytes: UnsafeRawBufferPointer) -> Int {
        var cursor = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) as UnsafePointer<UInt8>?
        guard let envelope = OpenSSLCall.attempt({ d2i_X509_SIG(nil, &cursor, bytes.count) }).value else { return 0 }
        defer { X509_SIG_free(envelope) }
        var data: UnsafePointer<X509_ALGOR>?
        X509_SIG_get0(envelope, &data, nil)
        return data.map { algorithm($0).rounds } ?? 0
    }

    /// PBMAC1 (RFC 9879), which OpenSSL 3.4 and newer verify, has parameters of the same form as PBES2: a key
    /// derivation and a second algorithm.
    static func algorithm(_ data: UnsafePointer<X509_ALGOR>) -> Algorithm {
        let scheme = OBJ_obj2nid(data.pointee.algorithm)
        guard [NID_pbes2, NID_pbmac1].contains(scheme) else {
            return (scheme, NID_undef, rounds(of: data, PBEPARAM_it(), PBEPARAM_free) { ASN1_INTEGER_get($0.pointee.iter) })
        }
        guard let contents = ASN1_TYPE_unpack_sequence(PBE2PARAM_it(), data.pointee.parameter) else {
            return (scheme, NID_undef, 0)
        }
        let parameters = contents.assumingMemoryBound(to: PBE2PARAM.self)
        defer { PBE2PARAM_free(parameters) }
        let count = rounds(of: parameters.pointee.keyfunc, PBKDF2PARAM_it(), PBKDF2PARAM_free) {
            ASN1_INTEGER_get($0.pointee.iter)
        }
        return (scheme, OBJ_obj2nid(parameters.pointee.encryption.pointee.algorithm), count)
    }

    /// Returns the rounds in the parameters of an algorithm, or 0 if the parameters have a different form.
    private static func rounds<Parameters>(
        of algorithm: UnsafePointer<X509_ALGOR>, _ form: OpaquePointer?, _ free: (UnsafeMutablePointer<Parameters>?) -> Void,
        _ rounds: (UnsafeMutablePointer<Parameters>) -> Int
    ) -> Int {
        guard let contents = OpenSSLCall.attempt({ ASN1_TYPE_unpack_sequence(form, algorithm.pointee.parameter) }).value else {
            return 0
        }
        let parameters = contents.assumingMemoryBound(to: Parameters.self)
        defer { free(parameters) }
        return rounds(parameters)
    }
}
