import SocketTLS

/// What a handmade peer sends in TLS 1.3. By default it follows every rule. Tests change one thing.
struct HandmadePlan: Sendable {
    typealias Change = @Sendable ([UInt8]) -> [UInt8]
    typealias Extension = (type: UInt16, body: [UInt8])

    enum Step: Hashable, Sendable {
        case hello, changeCipherSpec, encryptedExtensions, certificateRequest, certificate, certificateVerify, finished
        case data(String)
        /// Another handshake message in its own record.
        case message(UInt8, [UInt8])
        /// A record of any type with the current keys.
        case sealed(UInt8, [UInt8])
        /// The same, with the type in the content or missing.
        case inner([UInt8])
        case plain(UInt8, [UInt8])
        /// The last record again, unchanged or with a changed byte.
        case repetition, damage
    }

    let isServer: Bool
    var steps: [Step]
    /// Changes to the bodies of messages.
    var bodies: [Step: Change] = [:]
    /// Bytes after a message in the same record.
    var tails: [Step: [UInt8]] = [:]

    // Hello
    var legacyVersion = 0x0303
    var sessionID: Change = { $0 }
    var suites: [UInt16] = [0x1301]
    var compressions: [UInt8] = [0]
    /// If nil, the extension is missing, which means TLS 1.2.
    var version: Int? = 0x0304
    var group = 29
    var share: Change? = { $0 }
    var random = (0..<32).map { _ in UInt8.random(in: 0...255) }
    /// Additional extensions in the hello, in a server's EncryptedExtensions, and in its certificate.
    var helloExtensions: [Extension] = []
    var encryptedExtensions: [Extension] = []
    var certificateExtensions: [Extension] = []
    /// Extensions to omit from a ClientHello.
    var missing: Set<UInt16> = []
    var protocols = ["echo"]
    /// Makes a server request another ClientHello first, each time with these extensions.
    var retries: [[Extension]] = []
    var retrySuite = 0x1301
    /// The key of the session that a server resumes, or nil for a full handshake.
    private(set) var sessionKey: [UInt8]?

    // Proof
    var signatureAlgorithm = 0x0403
    var signatureContext: String
    var isSignedByStranger = false
    /// The context at the start of a response to a certificate request.
    var certificateContext: [UInt8] = []

    static let server = HandmadePlan(
        isServer: true,
        steps: [
            .hello, .changeCipherSpec, .encryptedExtensions, .certificate, .certificateVerify, .finished, .data("a line\n"),
        ], signatureContext: "TLS 1.3, server CertificateVerify")

    static let client = HandmadePlan(
        isServer: false, steps: [.changeCipherSpec, .finished, .data("a line\n")],
        signatureContext: "TLS 1.3, client CertificateVerify")

    /// A client that sends a certificate.
    static let clientWithCertificate = HandmadePlan(
        isServer: false,
        steps: [.changeCipherSpec, .certificate, .certificateVerify, .finished, .data("a line\n")],
        signatureContext: "TLS 1.3, client CertificateVerify")

    /// Inserts steps before another step.
    mutating func put(_ new: Step..., before step: Step) {
        steps.firstIndex(of: step).map { steps.insert(contentsOf: new, at: $0) }
    }

    mutating func put(_ new: Step..., behind step: Step) {
        steps.firstIndex(of: step).map { steps.insert(contentsOf: new, at: $0 + 1) }
    }

    mutating func remove(_ step: Step) { steps.removeAll { $0 == step } }

    /// Makes a server send a ticket with the nonce 0 for a session that allows early data.
    mutating func sendTicket() {
        let ticket =
            Wire.number(3600, bytes: 4) + Wire.number(0, bytes: 4) + Wire.vector([0], 1) + Wire.vector([7, 7, 7, 7], 2)
            + Wire.extensions([(42, Wire.number(16_384, bytes: 4))])
        put(.message(4, ticket), behind: .finished)
    }

    /// Makes a server resume the first session that the client offers.
    mutating func resume(with key: [UInt8]) {
        sessionKey = key
        helloExtensions = [(41, [0, 0])]
        remove(.certificate)
        remove(.certificateVerify)
    }

    // MARK: - Bodies

    func serverHello(to hello: HandmadeHello, share key: [UInt8]) -> [UInt8] {
        var list = [Extension]()
        if let version { list.append((43, Wire.number(version, bytes: 2))) }
        if let share { list.append((51, Wire.number(group, bytes: 2) + Wire.vector(share(key), 2))) }
        return body(random, hello.sessionID, suites[0]) + Wire.extensions(list + helloExtensions)
    }

    /// Returns a ServerHello with the random value of a HelloRetryRequest (RFC 8446, 4.1.3).
    func helloRetryRequest(to hello: HandmadeHello, _ extensions: [Extension]) -> [UInt8] {
        let sign = HandmadeKeys.hash(Array("HelloRetryRequest".utf8))
        return body(sign, hello.sessionID, UInt16(retrySuite))
            + Wire.extensions([(43, Wire.number(0x0304, bytes: 2))] + extensions)
    }

    private func body(_ random: [UInt8], _ id: [UInt8], _ suite: UInt16) -> [UInt8] {
        Wire.number(legacyVersion, bytes: 2) + random + Wire.vector(sessionID(id), 1) + Wire.number(Int(suite), bytes: 2)
            + [compressions[0]]
    }

    func clientHello(share key: [UInt8]) -> [UInt8] {
        let name = Array(Fixture.host.utf8)
        var list: [Extension] = [
            (0, Wire.vector([0] + Wire.vector(name, 2), 2)), (10, Wire.list([29], 2)),
            (13, Wire.list([0x0403, 0x0804], 2)), (16, protocolList),
        ]
        if let version { list.append((43, Wire.list([UInt16(version)], 1))) }
        if let share { list.append((51, Wire.vector(Wire.number(group, bytes: 2) + Wire.vector(share(key), 2), 2))) }
        list = list.filter { !missing.contains($0.type) } + helloExtensions
        let id = sessionID((0..<32).map { UInt8($0) })
        return Wire.number(legacyVersion, bytes: 2) + random + Wire.vector(id, 1) + Wire.list(suites, 2)
            + Wire.vector(compressions, 1) + Wire.extensions(list)
    }

    var protocolList: [UInt8] { Wire.vector(protocols.flatMap { Wire.vector(Array($0.utf8), 1) }, 2) }

    func certificate(_ der: [UInt8]) -> [UInt8] {
        let entry = Wire.vector(der, 3) + Wire.extensions(certificateExtensions)
        return Wire.vector(certificateContext, 1) + Wire.vector(entry, 3)
    }
}
