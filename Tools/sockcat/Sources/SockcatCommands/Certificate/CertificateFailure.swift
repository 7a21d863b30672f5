internal import AsyncSocketsTesting

/// Converts the errors of the certificate authority to failures of a command.
enum CertificateFailure {
    /// Runs `body`. Its errors name `subject`, such as the file that was read.
    static func translating<Value>(_ subject: String, _ body: () throws -> Value) throws -> Value {
        do {
            return try body()
        } catch let error as CertificateAuthorityError {
            throw Failure(
                "\(subject): \(error.message)", advice: advice(about: error), status: status(of: error),
                details: error.description)
        }
    }

    private static func status(of error: CertificateAuthorityError) -> ExitStatus {
        switch error.code {
        case .invalidName: .usage
        case .unreadable, .invalidAuthority, .fileNotWritten: .fileFailed
        default: .failure
        }
    }

    private static func advice(about error: CertificateAuthorityError) -> String? {
        switch error.code {
        case .invalidName: "write international names as A-labels, such as \"xn--bcher-kva.example\""
        case .unreadable: "pass a file in PEM form, and decrypt its key if it is encrypted"
        case .invalidAuthority: "pass a certificate and the key that belongs to it"
        default: nil
        }
    }
}
