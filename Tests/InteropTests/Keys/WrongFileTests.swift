import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Files that `openssl` wrote and that are not of the expected kind. Each error names the kind.
@Suite(.timeLimit(.patient)) struct WrongFileTests {
    private let folder: TemporaryFolder

    init() throws {
        folder = try TemporaryFolder()
    }

    private func run(_ script: String) async throws {
        let program = try Program(["sh", "-ec", "cd \(folder.path)\n\(script)"])
        let status = await program.exitStatus()
        try #require(status == 0, "\(program.printed)")
    }

    private func makeFiles() async throws {
        try await run(
            """
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -subj /CN=x
            openssl x509 -in cert.pem -outform DER -out cert.der
            openssl pkey -in key.pem -outform DER -out key.der
            openssl req -new -key key.pem -subj /CN=x -out request.pem
            openssl req -new -key key.pem -subj /CN=x -outform DER -out request.der
            openssl crl2pkcs7 -nocrl -certfile cert.pem -outform DER -out chain.p7b
            openssl crl2pkcs7 -nocrl -certfile cert.pem -out chain.p7c
            openssl pkcs12 -export -in cert.pem -inkey key.pem -passout pass:x -out all.p12
            : >index
            openssl ca -gencrl -keyfile key.pem -cert cert.pem -crldays 9 -md sha256 -out list.pem \
                -config /dev/stdin <<-END
            [ca]
            default_ca = own
            [own]
            database = index
            END
            openssl crl -in list.pem -outform DER -out list.der
            head -c 200 cert.der >half-cert.der
            head -c 300 all.p12 >half.p12
            head -c 60 key.der >half-key.der
            printf '\\376\\355\\376\\355\\0\\0\\0\\2' >store.jks
            : >empty
            for file in cert key list; do { cat $file.der; echo; } >$file-and-more.der; done
            """)
    }

    /// Returns the message for each file, without the name of the file.
    private func messages(_ files: [String], _ read: (String) throws -> Void) -> [String] {
        files.map { file in
            let path = "\(folder.path)/\(file)"
            let error = #expect(throws: TLSError.self) { try read(path) }
            let subject = "the file \"\(path)\" "
            let message = error?.message ?? ""
            #expect(message.hasPrefix(subject), "\(file): \(message)")
            return String(message.dropFirst(subject.count))
        }
    }

    @Test func theKindIsNamed() async throws {
        try await makeFiles()
        let pkcs7 = "is in PKCS#7 format: convert it with `openssl pkcs7 -print_certs`"
        let request = "is a certificate signing request: have a certificate authority issue the certificate"
        let list = "is a certificate revocation list"
        let store = "is a Java key store: convert it with `keytool -importkeystore -deststoretype pkcs12`"
        let pkcs12 = "is in PKCS#12 format: use TLSIdentity(pkcs12File:passphrase:)"
        func size(_ file: String) throws -> Int { try Data(contentsOf: URL(fileURLWithPath: "\(folder.path)/\(file)")).count }
        func truncated(_ file: String) throws -> String {
            "is truncated: its header specifies a length of \(try size(file)) bytes"
        }

        let certificates = [
            "all.p12", "chain.p7b", "request.der", "list.der", "key.der", "store.jks", "half-cert.der", "half.p12",
        ]
        let kinds = [
            pkcs12, pkcs7, request, list, "is a private key", store, try truncated("cert.der"), try truncated("all.p12"),
        ]
        #expect(messages(certificates) { _ = try TLSCertificate.certificates(file: $0) } == kinds)
        #expect(
            messages(["request.pem", "key.pem", "empty"]) { _ = try TLSCertificate.certificates(file: $0) } == [
                "contains no PEM-encoded certificates (PEM blocks found: \"CERTIFICATE REQUEST\")",
                "contains no PEM-encoded certificates (PEM blocks found: \"PRIVATE KEY\")",
                "contains no PEM-encoded certificates",
            ])

        func continued(_ file: String) throws -> String {
            "contains further bytes after its DER structure of \(try size(file)) bytes"
        }
        #expect(
            messages(["cert-and-more.der", "key-and-more.der"]) { _ = try TLSCertificate.certificates(file: $0) } == [
                try continued("cert.der"), try continued("key.der"),
            ])
        #expect(messages(["key-and-more.der"]) { _ = try TLSPrivateKey(file: $0) } == [try continued("key.der")])

        let keys = ["all.p12", "chain.p7b", "request.der", "list.der", "cert.der", "store.jks", "half-key.der"]
        #expect(
            messages(keys) { _ = try TLSPrivateKey(file: $0, passphrase: "x") } == [
                pkcs12, pkcs7, request, list, "is a certificate", store, try truncated("key.der"),
            ])
        #expect(
            messages(["cert.pem", "chain.p7c"]) { _ = try TLSPrivateKey(file: $0, passphrase: "x") } == [
                "contains no PEM-encoded private key (PEM blocks found: \"CERTIFICATE\")",
                "contains no PEM-encoded private key (PEM blocks found: \"PKCS7\")",
            ])

        let archives = ["chain.p7b", "request.der", "list.der", "cert.der", "key.der", "store.jks"]
        #expect(
            messages(archives) { _ = try TLSIdentity(pkcs12File: $0, passphrase: "x") }
                == [
                    pkcs7, request, list, "is a certificate", "is a private key", store,
                ].map { "is not in PKCS#12 format: it \($0)" })
        #expect(messages(["half.p12"]) { _ = try TLSIdentity(pkcs12File: $0, passphrase: "x") } == [try truncated("all.p12")])
    }

    /// The algorithms are in OpenSSL's legacy provider, so the passphrase cannot be wrong.
    @Test(arguments: ["PBE-SHA1-RC4-128", "PBE-SHA1-RC2-40", "PBE-MD5-DES"])
    func anUnsupportedAlgorithmIsNotReportedAsAWrongPassphrase(_ algorithm: String) async throws {
        try await run(
            """
            openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 |
                openssl pkcs8 -topk8 -v1 \(algorithm) -passout pass:sesame -provider legacy -provider default -out key.pem
            openssl pkcs8 -topk8 -in key.pem -passin pass:sesame -v1 \(algorithm) -passout pass:sesame -outform DER \
                -provider legacy -provider default -out key.der
            """)
        for file in ["key.pem", "key.der"] {
            let error = #expect(throws: TLSError.self) {
                try TLSPrivateKey(file: "\(folder.path)/\(file)", passphrase: "sesame")
            }
            #expect(
                error?.message.hasSuffix(
                    "contains an encrypted private key, but OpenSSL does not support the encryption algorithm by default: re-encrypt it with AES"
                ) == true, "\(error?.message ?? "")")
        }
    }

    /// With a supported algorithm, the error still names the passphrase.
    @Test func aWrongPassphraseIsNamed() async throws {
        try await run(
            "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -aes256 -pass pass:sesame -out key.pem")
        let error = #expect(throws: TLSError.self) { try TLSPrivateKey(file: "\(folder.path)/key.pem", passphrase: "wrong") }
        #expect(error?.message.hasSuffix("and the passphrase is wrong or the contents are damaged") == true)
    }

    /// Clients reject such a certificate (RFC 8422, section 5.1.1).
    @Test func anIdentityOnAnUnnamedCurveIsRefused() async throws {
        try await run(
            """
            openssl ecparam -name prime256v1 -param_enc explicit -genkey -noout -out key.pem
            openssl req -x509 -key key.pem -out cert.pem -subj /CN=x
            """)
        let error = #expect(throws: TLSError.self) {
            try TLSIdentity(certificateFile: "\(folder.path)/cert.pem", privateKeyFile: "\(folder.path)/key.pem")
        }
        #expect(
            error?.code == .invalidCertificate
                && error?.message == "the certificate of \"x\" has a key on an unnamed curve: create the key with a named curve")
    }

    /// OpenSSL's reason and the position say which certificate of a chain to replace.
    @Test func eachCertificateOfAChainIsNamed() async throws {
        try await run(
            """
            openssl req -x509 -newkey rsa:1024 -nodes -keyout weak.pem -out weak-cert.pem -subj '/CN=weak issuer'
            openssl req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=leaf
            openssl x509 -req -in request.pem -CA weak-cert.pem -CAkey weak.pem -CAcreateserial -out leaf.pem
            cat leaf.pem weak-cert.pem >chain.pem
            """)
        let identity = try TLSIdentity(certificateFile: "\(folder.path)/chain.pem", privateKeyFile: "\(folder.path)/key.pem")
        let error = #expect(throws: AsyncSocketError.self) {
            try SocketListener(port: 0, interface: "127.0.0.1", tls: .server(identity: identity))
        }
        #expect(
            error?.message.contains(
                "the certificate of \"weak issuer\" (number 2 in the chain) cannot be used for TLS: ca key too small") == true,
            "\(error?.message ?? "")")
    }

    /// Each file of a folder and each list of revoked certificates is named.
    @Test func eachFileOfAFolderIsNamed() async throws {
        try await makeFiles()
        try await run("mkdir roots; cp cert.pem roots/a.pem; cp request.der roots/b.cer")
        var settings = TLSSettings.client(serverName: "localhost")
        settings.trustRoots = .folder(path: "\(folder.path)/roots")
        func expect(_ message: String, _ settings: TLSClientSettings) async {
            let error = await #expect(throws: AsyncSocketError.self) {
                try await AsyncSocket().connect(to: "127.0.0.1", port: 9, tls: settings)
            }
            #expect(error?.message.contains(message) == true, "\(error?.message ?? "")")
        }
        await expect("the file \"\(folder.path)/roots/b.cer\" is a certificate signing request", settings)
    }
}
