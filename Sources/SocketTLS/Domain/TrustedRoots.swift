/// The trusted roots of a context, with the stamps that reveal changes to their files.
enum TrustedRoots: Hashable, Sendable {
    case unused
    case system([FileStamp])
    case file(path: String, FileStamp)
    case folder(path: String, [FileStamp])
    case certificates([TLSCertificate])

    init(_ roots: TLSTrustRoots) {
        switch roots {
        case .system: self = .system(SystemTrustStore.currentStamps())
        case .file(let path): self = .file(path: path, FileStamp(path: path))
        case .folder(let path): self = .folder(path: path, CertificateFolder(path: path).stamps)
        case .certificates(let certificates): self = .certificates(certificates)
        }
    }

    /// Returns the shared store for the system's roots. Returns a new store for other roots, or if the caller
    /// will modify the store (`isChanged`).
    func trustStore(isChanged: Bool) throws(TLSError) -> TrustStore {
        switch self {
        case .system where isChanged: try TrustStore.systemRoots()
        case .system(let stamps): try SystemTrustStore.store(for: stamps)
        case .unused, .file, .folder, .certificates: try TrustStore(listedCertificates())
        }
    }

    /// Returns the roots that a server names when it requests client certificates.
    func listedCertificates() throws(TLSError) -> [TLSCertificate] {
        switch self {
        case .unused, .system: []
        case .file(let path, _): try TLSCertificate.certificates(file: path)
        case .folder(let path, _): try CertificateFolder(path: path).certificates()
        case .certificates(let certificates): certificates
        }
    }
}

extension TrustedRoots: Digestible {
    /// With `.contents`, equal roots have equal digests, whatever their source.
    func append(to fields: inout DigestFields) {
        switch (fields.files, self) {
        case (.contents, _): fields.append(contents: { () throws(TLSError) in try listedCertificates().map(\.derBytes) })
        case (.stamps, .unused): fields.append(0)
        case (.stamps, .system(let stamps)):
            fields.append(1)
            stamps.append(to: &fields)
        case (.stamps, .file(_, let stamp)):
            fields.append(2)
            stamp.append(to: &fields)
        case (.stamps, .certificates(let certificates)):
            fields.append(3)
            certificates.append(to: &fields)
        case (.stamps, .folder(_, let stamps)):
            fields.append(4)
            stamps.append(to: &fields)
        }
    }
}
