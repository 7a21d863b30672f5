extension TLSSession: CustomStringConvertible {
    /// One line for people, such as "TLSv1.3, TLS_AES_256_GCM_SHA384, x25519, ALPN h2, resumed, peer
    /// mail.example.org". Missing values are left out. It may change; programs use the properties, or
    /// `json`.
    public var description: String {
        [
            protocolVersion.description, cipherSuite, group, applicationProtocol.map { "ALPN \($0.printable)" },
            isResumed ? "resumed" : nil, preSharedKeyText.map { "pre-shared key \($0.printable)" },
            peerCertificates.first.map { "peer \($0.displayName)" }, publicKeyText.map { "peer key \($0)" },
        ].compactMap(\.self).joined(separator: ", ")
    }

    /// A JSON object on one line, for logs that programs read. Its keys stay what they are, and come in this
    /// order; new ones may follow.
    ///
    /// - `version`: `protocolVersion`, such as "TLSv1.3".
    /// - `cipherSuite`, `group`, `applicationProtocol`, `serverName`: the properties.
    /// - `isResumed`: true or false.
    /// - `peerName`: the common name of the peer's certificate, or else its first host name or its subject.
    /// - `peerFingerprint`: the SHA-256 digest of the peer's certificate, in hexadecimal.
    /// - `peerSignatureAlgorithm`: the property.
    /// - `preSharedKeyIdentity`: the property, read as UTF-8.
    /// - `peerPublicKey`: the SHA-256 digest of the property, in hexadecimal.
    ///
    /// Strings, except for `isResumed`; null for what is not there.
    public var json: String {
        let peer = peerCertificates.first
        let members: KeyValuePairs<String, String?> = [
            "version": protocolVersion.description, "cipherSuite": cipherSuite, "group": group,
            "applicationProtocol": applicationProtocol, "serverName": serverName, "isResumed": nil,
            "peerName": peer?.displayName, "peerFingerprint": peer?.sha256Fingerprint.hexadecimal,
            "peerSignatureAlgorithm": peerSignatureAlgorithm, "preSharedKeyIdentity": preSharedKeyText,
            "peerPublicKey": publicKeyText,
        ]
        let texts = members.map { key, value in
            "\"\(key)\":\(key == "isResumed" ? "\(isResumed)" : value?.quotedForJSON ?? "null")"
        }
        return "{\(texts.joined(separator: ","))}"
    }

    private var publicKeyText: String? { peerPublicKey.map { PublicKeyInfo.sha256(of: $0).hexadecimal } }

    private var preSharedKeyText: String? { preSharedKeyIdentity.map { String(decoding: $0, as: UTF8.self) } }
}

extension [UInt8] {
    var hexadecimal: String {
        map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}

extension String {
    /// A string of JSON (RFC 8259, section 7).
    fileprivate var quotedForJSON: String {
        var quoted = "\""
        for scalar in unicodeScalars {
            switch scalar {
            case "\"", "\\": quoted += "\\\(scalar)"
            case "\u{0}"..<" ", "\u{7F}", "\u{2028}", "\u{2029}":
                let digits = String(scalar.value, radix: 16)
                quoted += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return quoted + "\""
    }
}
