/// Name constraints of a CA with the expected results, which are written down rather than computed.
struct ConstraintSample {
    /// In the syntax of x509v3_config(5).
    var text: String?
    /// In DER, if this syntax cannot express it.
    var bytes: [UInt8]?
    var isMalformed = false
    /// Wildcards that cover part of an excluded domain.
    var reachedBy: [String] = []

    static let all: [ConstraintSample] =
        harmless.map { ConstraintSample(text: $0) } + reached
        + malformedTexts.map { ConstraintSample(text: $0, isMalformed: true) }
        + malformedBytes.map { ConstraintSample(bytes: $0, isMalformed: true) }

    private static let harmless = [
        "critical,permitted;DNS:example.org", "critical,permitted;DNS:.example.org", "permitted;DNS:example.net",
        "critical,permitted;DNS:example.net,permitted;DNS:EXAMPLE.org", "critical,permitted;DNS:mail.example.org",
        "critical,permitted;email:.example.org", "critical,permitted;email:example.org", "excluded;email:ann@example.org",
        "critical,permitted;IP:10.0.0.0/255.0.0.0", "critical,permitted;IP:127.0.0.0/255.0.0.0",
        "critical,excluded;IP:127.0.0.0/255.0.0.0", "critical,excluded;IP:0.0.0.0/0.0.0.0",
        "critical,permitted;URI:.example.org", "excluded;URI:example.org", "critical,permitted;RID:1.2.3.4",
        "critical,excluded;DNS:org", "critical,excluded;DNS:example.org", "critical,excluded;DNS:a.b.example.org",
        "critical,permitted;DNS:org,excluded;DNS:secretexample.org",
    ]

    static let reached = [
        ConstraintSample(text: "critical,excluded;DNS:secret.example.org", reachedBy: ["*.example.org"]),
        ConstraintSample(text: "excluded;DNS:Secret.EXAMPLE.org", reachedBy: ["*.example.org"]),
        ConstraintSample(text: "critical,excluded;DNS:.secret.example.org", reachedBy: ["*.example.org"]),
        ConstraintSample(
            text: "critical,permitted;DNS:example.org,excluded;DNS:secret.example.org,excluded;DNS:x.mail.example.org",
            reachedBy: ["*.example.org", "*.mail.example.org"]),
        ConstraintSample(text: "critical,excluded;DNS:mail.example.org", reachedBy: ["*.example.org"]),
        ConstraintSample(text: "critical,excluded;DNS:example.net", reachedBy: ["*.net"]),
    ]

    private static let malformedTexts = [
        "critical,excluded;DNS:*.example.net", "excluded;DNS:a..b", "critical,excluded;DNS:example.net.",
        "critical,permitted;IP:10.0.0.0/255.0.255.0", "critical,excluded;IP:10.0.0.0/255.0.255.0",
        "critical,excluded;email:a b", "excluded;URI:a b",
    ]

    /// No constraints; invalid bytes; a five-byte address; a minimum distance; the Kelvin sign.
    private static let malformedBytes: [[UInt8]] = [
        [0x30, 0x00], [0x01, 0x02], [0x30, 0x0B, 0xA1, 0x09, 0x30, 0x07, 0x87, 0x05, 1, 2, 3, 4, 5],
        [0x30, 0x0B, 0xA1, 0x09, 0x30, 0x07, 0x82, 0x02, 0x61, 0x62, 0x81, 0x01, 0x01],
        [0x30, 0x09, 0xA1, 0x07, 0x30, 0x05, 0x82, 0x03, 0xE2, 0x84, 0xAA],
    ]
}
