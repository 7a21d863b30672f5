internal import FoundationEssentials

/// The files of a folder that may have certificates.
struct CertificateFolder {
    private let path: String

    init(path: String) {
        self.path = path
    }

    /// The stamps of the folder and of its files.
    var stamps: [FileStamp] {
        [FileStamp(path: path)] + (files() ?? []).map { FileStamp(path: $0) }
    }

    /// Every certificate once: a hashed folder names each file twice.
    ///
    /// Throws `invalidCertificate` if there is none, and for a file that cannot be read.
    func certificates() throws(TLSError) -> [Certificate] {
        guard let files = files() else {
            throw TLSError(.invalidCertificate, "The folder \"\(path.printable)\" cannot be read.", operation: "opendir")
        }
        var known: Set<Certificate> = []
        var certificates: [Certificate] = []
        for file in files {
            let contents = try SecretBytes.contents(ofFile: file, or: .invalidCertificate)
            let found = contents.isDER ? [try Certificate(der: Array(contents.bytes))] : try Self.read(contents, of: file)
            for certificate in found where known.insert(certificate).inserted { certificates.append(certificate) }
        }
        guard !certificates.isEmpty else {
            throw TLSError(
                .invalidCertificate, "The folder \"\(path.printable)\" has no certificate.", operation: "PEM_read_bio_X509")
        }
        return certificates
    }

    private static func read(_ contents: SecretBytes, of file: String) throws(TLSError) -> [Certificate] {
        do {
            return try Certificate.read(contents)
        } catch {
            var error = error
            error.message = "The file \"\(file.printable)\" has a certificate that cannot be decoded."
            throw error
        }
    }

    /// In an order of their own, so that the same folder has the same stamps.
    private func files() -> [String]? {
        guard let names = try? FileManager.default.contentsOfDirectory(atPath: path) else { return nil }
        return names.filter(Self.mayHaveCertificates).sorted().map { "\(path)/\($0)" }
    }

    private static func mayHaveCertificates(_ name: String) -> Bool {
        guard !name.hasPrefix("."), let dot = name.lastIndex(of: ".") else { return false }
        let (stem, ending) = (name[..<dot], name[name.index(after: dot)...])
        if ["pem", "crt", "cer"].contains(ending.lowercased()) { return true }
        // The hash of c_rehash(1). Revocation lists have an "r" before the number.
        return stem.count == 8 && stem.allSatisfy(\.isHexDigit) && !ending.isEmpty && ending.allSatisfy(\.isNumber)
    }
}
