internal import COpenSSL

/// The certificate revocation lists of a context, with stamps that reveal changes to their files.
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

        var name: String {
            switch source {
            case .file(let path): "the file \"\(path.printable)\""
            case .folder(let path): "the folder \"\(path.printable)\""
            }
        }
    }

    init(_ sources: [TLSRevocationSource], _ scope: TLSRevocationScope) {
        self.sources = sources.map(Source.init)
        self.scope = scope
    }

    var flags: Int {
        switch scope {
        case .leaf: Int(X509_V_FLAG_CRL_CHECK)
        case .chain: Int(X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL)
        }
    }

    /// Loads the lists into `store`. Throws `invalidCertificate` if a file cannot be read, or if a source
    /// contains no list.
    func add(to store: TrustStore) throws(TLSError) {
        for source in sources {
            var count = 0
            for file in try source.files { count += try Self.addLists(of: file, to: store) }
            if count == 0 { throw Self.nothing(in: source.name) }
        }
    }

    private static func nothing(in source: String) -> TLSError {
        TLSError(.invalidCertificate, "\(source) contains no certificate revocation lists", operation: "PEM_read_bio_X509_CRL")
    }

    private static func addLists(of path: String, to store: TrustStore) throws(TLSError) -> Int {
        let contents = try SecretBytes.contents(ofFile: path, or: .invalidCertificate)
        let source = "the file \"\(path.printable)\""
        if contents.isDER {
            let list = try OpenSSLCall.require(
                "d2i_X509_CRL", or: .invalidCertificate,
                "\(source) \(contents.kind?.description ?? "is not a certificate revocation list")"
            ) {
                contents.withBytes { bytes in
                    var cursor = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
                    return d2i_X509_CRL(nil, &cursor, bytes.count)
                }
            }
            defer { X509_CRL_free(list) }
            try Self.add(list, of: source, to: store)
            return 1
        }
        let reader = try PEMReader(contents, from: source, or: .invalidCertificate)
        var count = 0
        while let list = try reader.nextRevocationList() {
            defer { X509_CRL_free(list) }
            try add(list, of: source, to: store)
            count += 1
        }
        return count
    }

    /// Adds a list. Delta lists (RFC 5280, section 5.2.4) are rejected: they contain only the changes since
    /// another list, but OpenSSL would treat a delta list as complete, and ignore its base list.
    private static func add(_ list: OpaquePointer, of source: String, to store: TrustStore) throws(TLSError) {
        guard X509_CRL_get_ext_by_NID(list, NID_delta_crl, -1) < 0 else {
            throw TLSError(
                .invalidCertificate, "\(source) contains a delta revocation list: use a complete list",
                operation: "X509_CRL_get_ext_by_NID")
        }
        try store.add(revocationList: list, of: source)
    }

    /// Returns the earliest expiry of the lists against which OpenSSL checked a chain, in seconds since 1970,
    /// or `nil` if it used no lists. If an issuer has several lists, OpenSSL uses the latest.
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
