internal import FoundationEssentials

/// The files of a folder that may have certificates, or lists of revoked ones.
struct CertificateFolder {
    let path: String
    var contents = Contents.certificates

    /// The objects that the files are searched for.
    enum Contents {
        case certificates
        case revocationLists

        fileprivate var endings: [String] {
            switch self {
            case .certificates: ["pem", "crt", "cer"]
            case .revocationLists: ["pem", "crl"]
            }
        }
    }

    /// The stamps of the folder and of its files.
    var stamps: [FileStamp] {
        [FileStamp(path: path)] + (files() ?? []).map { FileStamp(path: $0) }
    }

    /// Every certificate once: a hashed folder names each file twice.
    ///
    /// Throws `invalidCertificate` if there is none, and for a file that cannot be read.
    func certificates() throws(TLSError) -> [Certificate] {
        var known: Set<Certificate> = []
        var certificates: [Certificate] = []
        for file in try readableFiles() {
            let contents = try SecretBytes.contents(ofFile: file, or: .invalidCertificate)
            let found = contents.isDER ? [try Certificate(der: contents.copy)] : try Self.read(contents, of: file)
            for certificate in found where known.insert(certificate).inserted { certificates.append(certificate) }
        }
        guard !certificates.isEmpty else {
            throw TLSError(
                .invalidCertificate, "The folder \"\(path.printable)\" has no certificate.", operation: "PEM_read_bio_X509")
        }
        return certificates
    }

    /// The paths. Throws `invalidCertificate` if the folder cannot be read.
    func readableFiles() throws(TLSError) -> [String] {
        if let files = files() { return files }
        throw TLSError(.invalidCertificate, "The folder \"\(path.printable)\" cannot be read.", operation: "opendir")
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
        return names.filter(isWanted).sorted().map { "\(path)/\($0)" }
    }

    private func isWanted(_ name: String) -> Bool {
        guard !name.hasPrefix("."), let dot = name.lastIndex(of: ".") else { return false }
        let (stem, ending) = (name[..<dot], name[name.index(after: dot)...])
        if contents.endings.contains(ending.lowercased()) { return true }
        // The names that c_rehash(1) gives: the hash, and a number. Revocation lists have an "r" before it.
        let isList = ending.hasPrefix("r")
        let number = isList ? ending.dropFirst() : ending
        return stem.count == 8 && stem.allSatisfy(\.isHexDigit) && !number.isEmpty && number.allSatisfy(\.isNumber)
            && isList == (contents == .revocationLists)
    }
}
