/// The source of a key's passphrase. The passphrase is requested once, and only if OpenSSL encounters
/// encrypted data.
///
/// OpenSSL is always given a callback: without a callback, it would prompt on the terminal and block.
final class PassphraseSource {
    private let provide: (() throws -> String)?
    private var answer: Answer?

    private enum Answer {
        /// The passphrase, NUL-terminated.
        case given(SecretBytes)
        case missing
        case tooLong(Int)
        case failed(any Error)
    }

    /// OpenSSL's `PEM_BUFSIZE`.
    private static let longest = 1024

    init(_ passphrase: String?) {
        provide = passphrase.map { passphrase in { passphrase } }
    }

    private init(asking provide: @escaping () throws -> String) {
        self.provide = provide
    }

    static func asking<Value>(
        _ provide: () throws -> String, _ body: (PassphraseSource) throws(TLSError) -> Value
    ) throws(TLSError) -> Value {
        try withoutActuallyEscaping(provide) { provide throws(TLSError) in try body(PassphraseSource(asking: provide)) }
    }

    /// Whether encrypted data was encountered and a passphrase was available.
    var isGiven: Bool {
        if case .given = answer { true } else { false }
    }

    /// Returns the NUL-terminated passphrase, or `nil` if no passphrase is available. `failure` then explains
    /// why.
    func terminated() -> SecretBytes? {
        let answer = self.answer ?? ask()
        self.answer = answer
        guard case .given(let secret) = answer else { return nil }
        return secret
    }

    private func ask() -> Answer {
        guard let provide else { return .missing }
        do {
            let text = try provide()
            guard text.utf8.count <= Self.longest else { return .tooLong(text.utf8.count) }
            return .given(SecretBytes(text, isTerminated: true))
        } catch {
            return .failed(error)
        }
    }

    /// Returns the error for data that could not be decrypted, or an error with the message `otherwise` if no
    /// encrypted data was encountered. `encrypted` is the start of the message in the first case.
    func failure(
        encrypted: String, otherwise: String, operation: String, _ entries: [OpenSSLError] = []
    ) -> TLSError {
        if case .failed(let error as TLSError) = answer { return error }
        let complaint =
            switch answer {
            case nil: otherwise
            case .missing: "\(encrypted), but no passphrase was given"
            case .given where entries.contains(where: \.isUnsupported):
                "\(encrypted), but OpenSSL does not support the encryption algorithm by default: re-encrypt it with AES"
            case .given: "\(encrypted), and the passphrase is wrong or the contents are damaged"
            case .tooLong(let count):
                "\(encrypted), but the passphrase has \(count) bytes: OpenSSL accepts at most \(Self.longest)"
            case .failed(let error): "\(encrypted), but the passphrase is not available: \(error)"
            }
        return TLSError(.invalidPrivateKey, complaint, operation: operation, openSSLStack: entries.map(\.text))
    }

    // MARK: - OpenSSL's callback

    /// The argument for `answerPassphrase`. This object must outlive the call.
    var argument: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

    fileprivate func copy(to buffer: UnsafeMutablePointer<CChar>, size: Int) -> Int32 {
        guard let secret = terminated() else { return -1 }
        let count = secret.count - 1
        guard count <= size else { return -1 }
        secret.withBytes { bytes in
            for offset in 0..<count { buffer[offset] = CChar(bitPattern: bytes[offset]) }
        }
        return Int32(count)
    }
}

/// A `pem_password_cb` that reads from a `PassphraseSource`. A global function, because a C function cannot
/// be a stored property.
func answerPassphrase(
    _ buffer: UnsafeMutablePointer<CChar>?, _ size: Int32, _: Int32, _ source: UnsafeMutableRawPointer?
) -> Int32 {
    guard let buffer, let source else { return -1 }
    return Unmanaged<PassphraseSource>.fromOpaque(source).takeUnretainedValue().copy(to: buffer, size: Int(size))
}
