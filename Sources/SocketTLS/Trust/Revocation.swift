internal import COpenSSL

/// The lists of revoked certificates that a context knows, and the stamps that show when their files change.
struct Revocation: Hashable, Sendable {
    private let sources: [Source]
    private let scope: TLSRevocationScope

    private struct Source: Hashable, Sendable {
        let source: TLSRevocationSource
        let stamps: [FileStamp]

        init(_ source: TLSRevocationSource) {
            self.source = source
            switch source {
            case .file(let path): stamps = [FileStamp(path: path)]
            case .folder(let path): stamps = CertificateFolder(path: path, contents: .revocationLists).stamps
            }
        }

        var files: [String] {
            get throws(TLSError) {
                switch source {
                case .file(let path): [path]
                case .folder(let path): try CertificateFolder(path: path, contents: .revocationLists).readableFiles()
                }
            }
        }

        /// In messages.
        var name: String {
            switch source {
            case .file(let path): "The file \"\(path.printable)\""
            case .folder(let path): "The folder \"\(path.printable)\""
            }
        }
    }

    init(_ sources: [TLSRevocationSource], _ scope: TLSRevocationScope) {
        self.sources = sources.map(Source.init)
        self.scope = scope
    }

    /// OpenSSL's flags for the verification.
    var flags: Int {
        switch scope {
        case .leaf: Int(X509_V_FLAG_CRL_CHECK)
        case .chain: Int(X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL)
        }
    }

    /// Reads the files. Throws `invalidCertificate` if one cannot be read, and for a source without a list.
    func add(to store: TrustStore) throws(TLSError) {
        for source in sources {
            var count = 0
            for file in try source.files { count += try Self.addLists(of: file, to: store) }
            if count == 0 { throw Self.nothing(in: source.name) }
        }
    }

    private static func nothing(in source: String) -> TLSError {
        TLSError(.invalidCertificate, "\(source) has no list of revoked certificates.", operation: "PEM_read_bio_X509_CRL")
    }

    private static func addLists(of path: String, to store: TrustStore) throws(TLSError) -> Int {
        let contents = try SecretBytes.contents(ofFile: path, or: .invalidCertificate)
        if contents.isDER {
            let list = try OpenSSLCall.require(
                "d2i_X509_CRL", or: .invalidCertificate, "The file \"\(path.printable)\" is not a list of revoked certificates."
            ) {
                contents.withBytes { bytes in
                    var cursor = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
                    return d2i_X509_CRL(nil, &cursor, bytes.count)
                }
            }
            defer { X509_CRL_free(list) }
            try Self.add(list, of: path, to: store)
            return 1
        }
        let reader = try PEMReader(contents, or: .invalidCertificate)
        var count = 0
        while let list = try reader.nextRevocationList() {
            defer { X509_CRL_free(list) }
            try add(list, of: path, to: store)
            count += 1
        }
        return count
    }

    /// A delta list (RFC 5280, 5.2.4) names only what has changed since another one. OpenSSL would take it
    /// for a complete one, and not look into the list that it belongs to.
    private static func add(_ list: OpaquePointer, of path: String, to store: TrustStore) throws(TLSError) {
        guard X509_CRL_get_ext_by_NID(list, NID_delta_crl, -1) < 0 else {
            throw TLSError(
                .invalidCertificate,
                "The file \"\(path.printable)\" has a delta list of revoked certificates: only complete lists can be used.",
                operation: "X509_CRL_get_ext_by_NID")
        }
        try store.add(revocationList: list)
    }

    /// When the lists end by which OpenSSL has judged a chain, in seconds since 1970; nil without lists. Of
    /// several lists of an issuer it takes the latest.
    func end(for chain: VerifiedChain, in store: OpaquePointer) -> Int? {
        let checked = scope == .leaf ? chain.certificates.prefix(1) : chain.certificates[...]
        return checked.compactMap { certificate in
            var end: Int = 0
            return COpenSSL_endOfLatestList(store, X509_get_issuer_name(certificate), &end) == 1 ? end : nil
        }.min()
    }
}

extension Revocation: Digestible {
    func append(to fields: inout DigestFields) {
        fields.append(flags)
        switch fields.files {
        case .stamps: sources.flatMap(\.stamps).append(to: &fields)
        case .contents:
            fields.append(sources.count)
            for source in sources {
                fields.append(contents: { () throws(TLSError) in
                    var lists: [[UInt8]] = []
                    for file in try source.files {
                        lists.append(try SecretBytes.contents(ofFile: file, or: .invalidCertificate).copy)
                    }
                    return lists
                })
            }
        }
    }
}
