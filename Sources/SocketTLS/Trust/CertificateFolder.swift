internal import FoundationEssentials

/// The files in a folder that may contain certificates or certificate revocation lists.
struct CertificateFolder {
    let path: String
    var contents = Contents.certificates

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

    var stamps: [FileStamp] {
        [FileStamp(path: path)] + (files() ?? []).map { FileStamp(path: $0) }
    }

    /// Whether the folder contains no files of this kind, or cannot be read.
    var isEmpty: Bool { (files() ?? []).isEmpty }

    /// Returns every certificate once. A hashed folder contains two names for each file.
    ///
    /// Throws `invalidCertificate` if the folder contains no certificate, or if a file cannot be read.
    func certificates() throws(TLSError) -> [TLSCertificate] {
        var known: Set<TLSCertificate> = []
        var certificates: [TLSCertificate] = []
        for file in try readableFiles() {
            let contents = try SecretBytes.contents(ofFile: file, or: .invalidCertificate)
            let source = "the file \"\(file.printable)\""
            let found = contents.isDER ? [try TLSCertificate(contents, source)] : try TLSCertificate.read(contents, from: source)
            for certificate in found where known.insert(certificate).inserted { certificates.append(certificate) }
        }
        guard !certificates.isEmpty else {
            throw TLSError(
                .invalidCertificate, "the folder \"\(path.printable)\" contains no certificates", operation: "PEM_read_bio_X509")
        }
        return certificates
    }

    /// Returns the paths of the files. Throws `invalidCertificate` if the folder cannot be read.
    func readableFiles() throws(TLSError) -> [String] {
        if let files = files() { return files }
        throw TLSError(.invalidCertificate, "the folder \"\(path.printable)\" cannot be read", operation: "opendir")
    }

    /// Sorted, so that an unchanged folder always has the same stamps.
    private func files() -> [String]? {
        guard let names = try? FileManager.default.contentsOfDirectory(atPath: path) else { return nil }
        return names.filter(isWanted).sorted().map { "\(path)/\($0)" }
    }

    private func isWanted(_ name: String) -> Bool {
        guard !name.hasPrefix("."), let dot = name.lastIndex(of: ".") else { return false }
        let (stem, ending) = (name[..<dot], name[name.index(after: dot)...])
        if contents.endings.contains(ending.lowercased()) { return true }
        // The names that c_rehash(1) creates: the hash and a number. For revocation lists, an "r" precedes
        // the number.
        let isList = ending.hasPrefix("r")
        let number = isList ? ending.dropFirst() : ending
        return stem.count == 8 && stem.allSatisfy(\.isHexDigit) && !number.isEmpty && number.allSatisfy(\.isNumber)
            && isList == (contents == .revocationLists)
    }
}
