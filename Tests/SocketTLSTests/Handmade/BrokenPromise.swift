import SocketTLS

/// A peer that breaks one rule of TLS 1.3, and the alert that RFC 8446 specifies.
struct BrokenPromise: Sendable, CustomStringConvertible {
    let description: String
    let plan: HandmadePlan
    /// The first is specified in the RFC. Others are sent by some versions of OpenSSL.
    let alerts: Set<TLSAlert>
    /// Whether the rule is broken after the handshake and some data.
    var isLate = false

    private init(_ description: String, _ alerts: [TLSAlert], _ plan: HandmadePlan) {
        (self.description, self.plan, self.alerts) = (description, plan, Set(alerts))
    }
}

/// An unknown extension, and some that were not requested.
private let (unknown, status, signedTimes, earlyData, sharedKey) = (
    UInt16(0xFAFA), UInt16(5), UInt16(18), UInt16(42), UInt16(41)
)

// MARK: - Servers

extension BrokenPromise {
    private static func server(
        _ text: String, _ alerts: TLSAlert..., change: (inout HandmadePlan) -> Void
    ) -> BrokenPromise {
        BrokenPromise(text, alerts, HandmadePlan.server.with(change))
    }

    static let serverHellos = [
        server("another session identifier", .illegalParameter) { $0.sessionID = { $0.reversed() } },
        server("no session identifier", .illegalParameter) { $0.sessionID = { _ in [] } },
        server("a suite that was not offered", .illegalParameter) { $0.suites = [0x1305] },
        server("TLS 1.1", .protocolVersion) {
            ($0.legacyVersion, $0.version, $0.share, $0.suites) = (0x0302, nil, nil, [0xC013])
        },
        server("static RSA in TLS 1.2", .illegalParameter) { ($0.version, $0.share, $0.suites) = (nil, nil, [0x009C]) },
        server("a finite field in TLS 1.2", .illegalParameter) { ($0.version, $0.share, $0.suites) = (nil, nil, [0x009E]) },
        server("a finite field", .illegalParameter) {
            $0.group = 0x0100
            $0.share = { _ in [UInt8](repeating: 1, count: 256) }
        },
        server("a suite of TLS 1.2", .illegalParameter) { $0.suites = [0xC02B] },
        server("compression", .illegalParameter) { $0.compressions = [1] },
        server("TLS 1.2 by the new extension", .illegalParameter, .protocolVersion) { $0.version = 0x0303 },
        server("a version to come", .illegalParameter, .protocolVersion) { $0.version = 0x0305 },
        server("a downgrade to TLS 1.2", .illegalParameter) { $0.downgrade(to: 1) },
        server("a downgrade to TLS 1.1, said in TLS 1.2", .illegalParameter) { $0.downgrade(to: 0) },
        server("a group that was not offered", .illegalParameter) {
            $0.group = 25
            $0.share = { _ in [4] + [UInt8](repeating: 1, count: 132) }
        },
        server("a group without a share", .illegalParameter) {
            $0.group = 23
            $0.share = { _ in [4] + [UInt8](repeating: 1, count: 64) }
        },
        server("a share of zeros", .illegalParameter) { $0.share = { _ in [UInt8](repeating: 0, count: 32) } },
        server("a share that is too short", .illegalParameter) { $0.share = { $0.dropLast() } },
        // OpenSSL 3.0, and 3.5.
        server("no share", .missingExtension, .illegalParameter) { $0.share = nil },
        server("an application protocol in the hello", .illegalParameter) {
            $0.helloExtensions = [(16, $0.protocolList)]
        },
        server("a key that was not offered", .unsupportedExtension) { $0.helloExtensions = [(sharedKey, [0, 0])] },
        server("a cookie in the hello", .illegalParameter, .unsupportedExtension) {
            $0.helloExtensions = [(44, [0, 1, 0])]
        },
        server("a version twice", .illegalParameter, .decodeError) { $0.helloExtensions = [(43, [3, 4])] },
        server("bytes behind the extensions", .decodeError) { $0.bodies[.hello] = { $0 + [0] } },
        server("a message behind the hello in its record", .unexpectedMessage) { $0.tails[.hello] = [8, 0, 0, 2, 0, 0] },
        server("a second wish for another hello", .unexpectedMessage) { $0.retries = [[(44, [0, 1, 0])], [(44, [0, 1, 1])]] },
        server("a wish for the same hello", .illegalParameter) { $0.retries = [[]] },
        server("a wish for a group that was not offered", .illegalParameter) { $0.retries = [[(51, [0, 25])]] },
        server("a wish for the group that was there", .illegalParameter) { $0.retries = [[(51, [0, 29])]] },
        server("another suite after a wish", .illegalParameter) {
            $0.retries = [[(44, [0, 1, 0])]]
            $0.retrySuite = 0x1302
        },
        server("an application protocol with a wish", .illegalParameter) {
            $0.retries = [[(44, [0, 1, 0]), (16, $0.protocolList)]]
        },
    ]

    /// The early data of the first ClientHello is no longer valid then (RFC 8446, 4.2.10).
    static func earlyDataBehindAWish(resumingWith key: [UInt8]) -> BrokenPromise {
        server("early data that is taken after a wish for another hello", .illegalParameter) {
            $0.resume(with: key)
            $0.retries = [[(44, [0, 1, 0])]]
            $0.encryptedExtensions = [(earlyData, [])]
        }
    }

    static let serverFlights =
        [
            server("an application protocol that was not offered", .illegalParameter, .decodeError) { $0.protocols = ["other"] },
            server("two application protocols", .decodeError) { $0.protocols = ["echo", "more"] },
            server("an empty application protocol", .decodeError) { $0.protocols = [""] },
            server("an application protocol twice", .illegalParameter, .decodeError) {
                $0.encryptedExtensions = [(16, $0.protocolList)]
            },
            server("early data that was not sent", .unsupportedExtension) { $0.encryptedExtensions = [(earlyData, [])] },
            server("a status where none is", .illegalParameter) { $0.encryptedExtensions = [(status, [])] },
            server("a share in the wrong message", .illegalParameter) { $0.encryptedExtensions = [(51, [0, 29, 0, 0])] },
            server("a version in the wrong message", .illegalParameter) { $0.encryptedExtensions = [(43, [3, 4])] },
            server("a length of fragments that was not asked for", .unsupportedExtension) { $0.encryptedExtensions = [(1, [1])] },
            server("bytes behind the encrypted extensions", .decodeError) { $0.bodies[.encryptedExtensions] = { $0 + [0] } },
            server("no encrypted extensions", .unexpectedMessage) { $0.remove(.encryptedExtensions) },
            server("encrypted extensions twice", .unexpectedMessage) {
                $0.put(.message(8, [0, 0]), behind: .encryptedExtensions)
            },
            server("a request without signatures", .missingExtension) {
                $0.put(.message(13, [0, 0, 0]), before: .certificate)
            },
            server("a request behind the certificate", .unexpectedMessage) { $0.put(.certificateRequest, behind: .certificate) },
            server("a certificate with a context", .illegalParameter, .decodeError) { $0.certificateContext = [7] },
            server("no certificate in its message", .decodeError) { $0.bodies[.certificate] = { _ in [0, 0, 0, 0] } },
            server("twelve certificates", .badCertificate) { plan in
                plan.bodies[.certificate] = { body in
                    let entry = Array(body.dropFirst(4))
                    return [0] + Wire.vector((0..<12).flatMap { _ in entry }, 3)
                }
            },
            server("a certificate of a megabyte", .illegalParameter) {
                $0.bodies[.certificate] = { _ in [UInt8](repeating: 0, count: 1 << 20) }
            },
            server("a status that was not asked for", .unsupportedExtension) {
                $0.certificateExtensions = [(status, [1, 0, 0, 1, 0])]
            },
            server("signed times that were not asked for", .unsupportedExtension) {
                $0.certificateExtensions = [(signedTimes, [0, 2, 0, 0])]
            },
            server("no certificate and no proof", .unexpectedMessage) {
                $0.remove(.certificate)
                $0.remove(.certificateVerify)
            },
            server("no certificate", .unexpectedMessage) { $0.remove(.certificate) },
            server("no proof", .unexpectedMessage) { $0.remove(.certificateVerify) },
            server("the proof first", .unexpectedMessage) {
                $0.remove(.certificateVerify)
                $0.put(.certificateVerify, before: .certificate)
            },
            server("a proof twice", .unexpectedMessage) { $0.put(.certificateVerify, behind: .certificateVerify) },
            server("a proof by another key", .decryptError) { $0.isSignedByStranger = true },
            server("the proof of a client", .decryptError) { $0.signatureContext = HandmadePlan.client.signatureContext },
            server("a proof with SHA-1", .illegalParameter) { $0.signatureAlgorithm = 0x0203 },
            server("a proof for another curve", .illegalParameter) { $0.signatureAlgorithm = 0x0503 },
            server("a proof for another kind of key", .illegalParameter) { $0.signatureAlgorithm = 0x0804 },
            server("an empty proof", .decryptError, .decodeError) { $0.bodies[.certificateVerify] = { _ in [4, 3, 0, 0] } },
        ] + flights(of: .server)

    static let serversLate =
        (late(.server)
        + [
            server("a request for a certificate", .unexpectedMessage) {
                $0.put(.message(13, [1, 7] + Wire.extensions([(13, [0, 2, 4, 3])])), behind: .data("a line\n"))
            },
            server("a flood of tickets", .unexpectedMessage) { plan in
                plan.steps += (0..<200).map { HandmadePlan.Step.message(4, [0, 0, 0, 9, 0, 0, 0, 0, 1, $0, 0, 1, 0, 0, 0]) }
            },
            server("an empty ticket", .decodeError, .illegalParameter) { $0.put(.message(4, []), behind: .data("a line\n")) },
            server("a wish to begin again", .unexpectedMessage) { $0.put(.message(0, []), behind: .data("a line\n")) },
        ]).map(\.atTheEnd)
}

// MARK: - Clients

extension BrokenPromise {
    private static func client(
        _ text: String, _ alerts: TLSAlert..., change: (inout HandmadePlan) -> Void
    ) -> BrokenPromise {
        BrokenPromise(text, alerts, HandmadePlan.client.with(change))
    }

    static let clientHellos = [
        client("compression", .illegalParameter) { $0.compressions = [1, 0] },
        client("compression alone", .illegalParameter, .decodeError) { $0.compressions = [1] },
        client("a session identifier that is too long", .decodeError) { $0.sessionID = { $0 + [0] } },
        client("no share", .missingExtension) { $0.share = nil },
        client("no groups", .missingExtension) { $0.missing = [10] },
        client("no signatures", .missingExtension) { $0.missing = [13] },
        client("a share of zeros", .illegalParameter) { $0.share = { _ in [UInt8](repeating: 0, count: 32) } },
        client("a share that is too short", .illegalParameter) { $0.share = { $0.dropLast() } },
        client("an extension twice", .illegalParameter, .decodeError) { $0.helloExtensions = [(16, $0.protocolList)] },
        client("a key that is not the last extension", .illegalParameter, .decodeError) {
            $0.helloExtensions = [(45, [1, 1]), (sharedKey, fakeKey), (unknown, [])]
        },
        client("a key without its modes", .missingExtension) { $0.helloExtensions = [(sharedKey, fakeKey)] },
        client("bytes behind the extensions", .decodeError) { $0.bodies[.hello] = { $0 + [0] } },
        client("an empty list of protocols", .decodeError) { $0.protocols = [] },
        client("an empty protocol", .decodeError) { $0.protocols = [""] },
        client("an empty list of versions", .decodeError, .protocolVersion) {
            $0.missing = [43]
            $0.helloExtensions = [(43, [0])]
        },
        client("300 suites", .illegalParameter) { $0.suites += (0..<300).map { 0xFA00 + $0 } },
        client("65 groups", .illegalParameter) {
            $0.missing = [10]
            $0.helloExtensions = [(10, Wire.list([29] + (0..<64).map { 0xFA00 + $0 }, 2))]
        },
        client("129 signatures", .illegalParameter) {
            $0.missing = [13]
            $0.helloExtensions = [(13, Wire.list([0x0403] + (0..<128).map { 0xFA00 + $0 }, 2))]
        },
        client("a hello of 33 KiB", .illegalParameter) {
            $0.helloExtensions = [(21, [UInt8](repeating: 0, count: 16_000)), (unknown, [UInt8](repeating: 0, count: 17_500))]
        },
        client("a message behind the hello in its record", .unexpectedMessage) { $0.tails[.hello] = [20, 0, 0, 0] },
        client("TLS 1.1", .protocolVersion) {
            ($0.legacyVersion, $0.version, $0.share, $0.suites) = (0x0302, nil, nil, [0xC013])
        },
        client("static RSA in TLS 1.2", .handshakeFailure) { ($0.version, $0.share, $0.suites) = (nil, nil, [0x009C]) },
        client("a finite field in TLS 1.2", .handshakeFailure) { ($0.version, $0.share, $0.suites) = (nil, nil, [0x009E]) },
        client("an old cipher in TLS 1.2", .handshakeFailure) { ($0.version, $0.share, $0.suites) = (nil, nil, [0xC009]) },
        client("a finite field", .handshakeFailure) {
            $0.missing = [10]
            $0.helloExtensions = [(10, Wire.list([0x0100], 2))]
            $0.group = 0x0100
            $0.share = { _ in [UInt8](repeating: 1, count: 256) }
        },
        client("a fall back to TLS 1.2", .inappropriateFallback) {
            ($0.version, $0.share, $0.suites) = (nil, nil, [0xC02B, 0x5600])
        },
    ]

    /// An identity of one byte and a binder of 32.
    private static let fakeKey = [0, 7, 0, 1, 9, 0, 0, 0, 0, 0, 33, 32] + [UInt8](repeating: 0, count: 32)

    static let clientFlights =
        flights(of: .client) + [
            client("a certificate that was not asked for", .unexpectedMessage) { $0.put(.certificate, before: .finished) },
            client("no certificate, which was not asked for", .unexpectedMessage) {
                $0.put(.message(11, [0, 0, 0, 0]), before: .finished)
            },
            client("a proof that was not asked for", .unexpectedMessage) { $0.put(.certificateVerify, before: .finished) },
            client("the end of early data that did not begin", .unexpectedMessage) { $0.put(.message(5, []), before: .finished) },
        ]

    private static func known(
        _ text: String, _ alerts: TLSAlert..., change: (inout HandmadePlan) -> Void
    ) -> BrokenPromise {
        BrokenPromise(text, alerts, HandmadePlan.clientWithCertificate.with(change))
    }

    static let clientsThatAreAsked = [
        known("a certificate with a context", .illegalParameter, .decodeError) { $0.certificateContext = [7] },
        known("no certificate in its message", .certificateRequired) {
            $0.bodies[.certificate] = { _ in [0, 0, 0, 0] }
            $0.remove(.certificateVerify)
        },
        known("no message with a certificate", .unexpectedMessage) {
            $0.remove(.certificate)
            $0.remove(.certificateVerify)
        },
        known("no proof", .unexpectedMessage) { $0.remove(.certificateVerify) },
        known("the proof first", .unexpectedMessage) {
            $0.remove(.certificateVerify)
            $0.put(.certificateVerify, before: .certificate)
        },
        known("a certificate twice", .unexpectedMessage) { $0.put(.certificate, behind: .certificate) },
        known("a proof by another key", .decryptError) { $0.isSignedByStranger = true },
        known("the proof of a server", .decryptError) { $0.signatureContext = HandmadePlan.server.signatureContext },
        known("a proof with SHA-1", .illegalParameter) { $0.signatureAlgorithm = 0x0203 },
        known("a proof for another curve", .illegalParameter) { $0.signatureAlgorithm = 0x0503 },
        known("a status that was not asked for", .unsupportedExtension) {
            $0.certificateExtensions = [(status, [1, 0, 0, 1, 0])]
        },
    ]

    static let clientsLate =
        (late(.client)
        + [
            client("a certificate", .unexpectedMessage) { $0.put(.message(11, [0, 0, 0, 0]), behind: .data("a line\n")) },
            client("a ticket", .unexpectedMessage) {
                $0.put(.message(4, [0, 0, 0, 9, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0]), behind: .data("a line\n"))
            },
            client("a hello", .unexpectedMessage) { $0.put(.message(1, [3, 3]), behind: .data("a line\n")) },
            client("a request for a certificate", .unexpectedMessage) {
                $0.put(.message(13, [1, 7] + Wire.extensions([(13, [0, 2, 4, 3])])), behind: .data("a line\n"))
            },
        ]).map(\.atTheEnd)
}

// MARK: - Both

extension BrokenPromise {
    /// More data follows after the violation.
    fileprivate var atTheEnd: BrokenPromise {
        var promise = BrokenPromise(description, Array(alerts), plan.with { $0.steps.append(.data("evil\n")) })
        promise.isLate = true
        return promise
    }

    /// Violations before and in the Finished message.
    fileprivate static func flights(of plan: HandmadePlan) -> [BrokenPromise] {
        func made(_ text: String, _ alerts: TLSAlert..., change: (inout HandmadePlan) -> Void) -> BrokenPromise {
            BrokenPromise(text, alerts, plan.with(change))
        }
        return [
            made("a changed Finished", .decryptError) { $0.bodies[.finished] = { $0.dropLast() + [($0.last ?? 0) ^ 1] } },
            made("a short Finished", .decodeError, .decryptError) { $0.bodies[.finished] = { $0.dropLast() } },
            made("an empty Finished", .decodeError, .decryptError) { $0.bodies[.finished] = { _ in [] } },
            made("a long Finished", .decodeError, .decryptError) { $0.bodies[.finished] = { $0 + [0] } },
            made("a message behind the Finished in its record", .unexpectedMessage) { $0.tails[.finished] = [4, 0, 0, 0] },
            made("data before the Finished", .unexpectedMessage) { $0.put(.data("evil\n"), before: .finished) },
            made("no Finished", .unexpectedMessage) { $0.remove(.finished) },
            made("new keys before the Finished", .unexpectedMessage) { $0.put(.message(24, [0]), before: .finished) },
            made("a ticket before the Finished", .unexpectedMessage) { $0.put(.message(4, []), before: .finished) },
            made("an unknown message", .unexpectedMessage) { $0.put(.message(99, []), before: .finished) },
            made("a change of ciphers with another content", .unexpectedMessage, .illegalParameter) {
                $0.put(.plain(20, [2]), before: .finished)
            },
            made("a change of ciphers with two bytes", .unexpectedMessage, .illegalParameter) {
                $0.put(.plain(20, [1, 1]), before: .finished)
            },
            made("an encrypted change of ciphers", .unexpectedMessage) { $0.put(.sealed(20, [1]), before: .finished) },
            made("a record without a type", .unexpectedMessage) { $0.put(.inner([0, 0, 0]), before: .finished) },
            made("a record of an unknown type", .unexpectedMessage) { $0.put(.sealed(99, [0]), before: .finished) },
            made("an empty record of the handshake", .unexpectedMessage) { $0.put(.sealed(22, []), before: .finished) },
            made("a message in plaintext", .unexpectedMessage) { $0.put(.plain(22, [20, 0, 0, 0]), before: .finished) },
            made("a record that is cut into by data", .unexpectedMessage) {
                $0.put(.sealed(22, [20, 0]), .data("evil\n"), before: .finished)
            },
        ]
    }

    /// A ChangeCipherSpec after the Finished. According to RFC 8446, 5, it is dropped before that and
    /// rejected now.
    static func lateChange(_ plan: HandmadePlan) -> BrokenPromise {
        BrokenPromise("a change of ciphers", [.unexpectedMessage], plan.with { $0.steps.append(.changeCipherSpec) }).atTheEnd
    }

    fileprivate static func late(_ plan: HandmadePlan) -> [BrokenPromise] {
        func made(_ text: String, _ alerts: TLSAlert..., steps: HandmadePlan.Step...) -> BrokenPromise {
            BrokenPromise(text, alerts, plan.with { $0.steps += steps })
        }
        return [
            made("a record twice", .badRecordMAC, steps: .repetition),
            made("a changed record", .badRecordMAC, steps: .damage),
            made("a message in plaintext", .unexpectedMessage, steps: .plain(22, [24, 0, 0, 1, 0])),
            made("an alert in plaintext", .unexpectedMessage, steps: .plain(21, [2, 40])),
            made("new keys of an unknown kind", .illegalParameter, steps: .message(24, [2])),
            made("new keys of no kind", .decodeError, steps: .message(24, [])),
            made("new keys of two kinds", .decodeError, .illegalParameter, steps: .message(24, [0, 0])),
            made("new keys that are not used", .badRecordMAC, steps: .message(24, [0])),
            made("new keys and more in one record", .unexpectedMessage, steps: .sealed(22, [24, 0, 0, 1, 0, 24])),
            made("another Finished", .unexpectedMessage, steps: .message(20, [UInt8](repeating: 0, count: 32))),
            made("another hello of a server", .unexpectedMessage, steps: .message(2, [3, 3])),
            made("an unknown message", .unexpectedMessage, steps: .message(99, [])),
            made("a record without a type", .unexpectedMessage, steps: .inner([0, 0])),
            made("a record of an unknown type", .unexpectedMessage, steps: .sealed(99, [0])),
            made("an empty record of the handshake", .unexpectedMessage, steps: .sealed(22, [])),
            made("a message that is cut into by data", .unexpectedMessage, steps: .sealed(22, [24, 0])),
            made("a record that is too long inside", .recordOverflow, steps: .data(String(repeating: "x", count: 16_385))),
            made("a record that is too long", .recordOverflow, steps: .plain(23, [UInt8](repeating: 0, count: 16_641))),
        ]
    }
}

extension HandmadePlan {
    fileprivate func with(_ change: (inout HandmadePlan) -> Void) -> HandmadePlan {
        var plan = self
        change(&plan)
        return plan
    }

    /// As a TLS 1.3 server responds if an attacker has downgraded the ClientHello to TLS 1.2 (RFC 8446,
    /// 4.1.3).
    fileprivate mutating func downgrade(to minor: UInt8) {
        (version, share, suites) = (nil, nil, [0xC02B])
        random.replaceSubrange(24..<32, with: Array("DOWNGRD".utf8) + [minor])
        steps = [.hello]
    }
}
