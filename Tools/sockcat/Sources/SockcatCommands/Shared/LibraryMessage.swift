/// Rewrites the library's messages for users of the program: they do not know the names of properties and
/// functions, and cannot change them.
enum LibraryMessage {
    /// Returns the message without such names. Text in quotation marks stays as it is.
    static func translated(_ message: String) -> String {
        if let phrase = phrases[message] { return phrase }
        return withoutAdvice(withoutProperties(message)).split(separator: "\"", omittingEmptySubsequences: false).enumerated()
            .map { $0.isMultiple(of: 2) ? translated(unquoted: String($1)) : String($1) }.joined(separator: "\"")
    }

    private static let phrases = [
        "the deadline of withDeadline expired": "the time limit expired"
    ]

    /// What the properties that remain in messages are about.
    private static let words = [
        "the proxies in sources": "the addresses of --proxy-in",
        "; the policy is .required": "", "applicationProtocols": "the list of protocols (ALPN)",
        "maximumVersion": "the newest version",
        "maximumConnections reached": "the maximum number of connections is reached",
        "maximumFrameLength": "the maximum", "maxLength": "the maximum", "startTLS": "the TLS handshake",
        "startDTLS": "the DTLS handshake", "earlyData": "early data", "trustTimeout": "the time limit",
        "unlistedSources": "unlisted sources",
    ]

    /// Terms of standards and names of programs that look like the names of properties.
    private static let terms: Set<Substring> = [
        "OpenSSL", "ClientHello", "StartTLS", "AsyncSockets", "SubjectPublicKeyInfo", "digitalSignature", "PostgreSQL", "MySQL",
        "ManageSieve", "MariaDB", "TLSA",
    ]

    /// Removes ": set NAME to VALUE" from the end.
    private static func withoutAdvice(_ message: String) -> String {
        guard let colon = message.ranges(of: ": ").last, message[colon.upperBound...].contains(where: { $0 == "\"" }) == false,
            !tokens(in: message[colon.upperBound...]).allSatisfy({ names(in: $0).isEmpty })
        else { return message }
        return String(message[..<colon.lowerBound])
    }

    /// Removes " (NAME)", which names the property of a limit that the message describes.
    private static func withoutProperties(_ message: String) -> String {
        message.replacing(#/ \((?<name>[a-z]+[A-Z]\w*)\)/#) { terms.contains($0.name) ? String($0.0) : "" }
    }

    private static func translated(unquoted text: String) -> String {
        var text = text
        for (name, word) in words.sorted(by: { $0.key.count > $1.key.count }) {
            text = text.replacing(name, with: word)
        }
        return tokens(in: text[...]).map { token in
            var token = String(token)
            for name in names(in: token[...]) { token = token.replacing(name, with: spaced(name)) }
            return token
        }.joined(separator: " ")
    }

    private static func tokens(in text: Substring) -> [Substring] { text.split(separator: " ", omittingEmptySubsequences: false) }

    /// Returns words such as "maxLength", ".inMemory", "TLSIdentity(pkcs12File:)" and "receiveOnce()". Paths
    /// and the names of OpenSSL's algorithms for encrypted keys are not such words.
    private static func names(in token: Substring) -> [Substring] {
        if token.contains("/") || token.hasPrefix("pbeWith") { return [] }
        return token.matches(
            of: #/\.?\b(?:[a-z]+[0-9]*[A-Z]\w*|D?TLS[A-Z]\w*|[A-Z]\w*[a-z]\w*[A-Z]\w*|\w+\(\))(?:\([\w:]*\))?/#
        ).map { token[$0.range] }.filter { !terms.contains($0) }
    }

    /// "maximumPeers" becomes "maximum peers".
    private static func spaced(_ name: Substring) -> String {
        let word = name.prefix { $0 != "(" }.drop { $0 == "." }
        return word.replacing(#/([a-z0-9])([A-Z])/#) { "\($0.1) \($0.2)" }.lowercased()
    }
}
