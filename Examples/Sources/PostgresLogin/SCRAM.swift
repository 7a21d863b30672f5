import Crypto
import Foundation

/// A login by SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677), which proves two things without showing the password:
/// that the client knows it, and that the server does.
///
/// The proof includes a binding to the TLS connection. So no one in the middle can pass it on.
struct SCRAM {
    static let mechanism = "SCRAM-SHA-256-PLUS"

    /// What the client says first.
    let firstMessage: String
    private let header: String
    private let firstMessageBare: String
    private let nonce: String
    private let password: String
    private let binding: [UInt8]

    /// - Parameters:
    ///   - bindingName: The registered name of the kind of binding, such as "tls-server-end-point".
    ///   - binding: Its bytes.
    init(password: String, bindingName: String, binding: [UInt8]) {
        self.password = password
        self.binding = binding
        header = "p=\(bindingName),,"
        nonce = SymmetricKey(size: .bits192).withUnsafeBytes { Data($0) }.base64EncodedString()
        // PostgreSQL knows the user from the startup message.
        firstMessageBare = "n=,r=\(nonce)"
        firstMessage = header + firstMessageBare
    }

    /// The client's last message, and the signature with which the server has to answer it.
    func answer(to challenge: String) throws -> (message: String, expectedSignature: Data) {
        let fields = Self.fields(of: challenge)
        guard let combined = fields["r"], combined.hasPrefix(nonce), combined != nonce,
            let salt = fields["s"].flatMap({ Data(base64Encoded: $0) }), let count = fields["i"].flatMap({ Int($0) }),
            (4_096...1_000_000).contains(count)
        else { throw PostgresError("the server's challenge cannot be answered: \(challenge)") }
        let salted = Self.saltedPassword(password, salt, count)
        let clientKey = Self.authenticate("Client Key", by: salted)
        let bound = (Data(header.utf8) + binding).base64EncodedString()
        let withoutProof = "c=\(bound),r=\(combined)"
        let everything = "\(firstMessageBare),\(challenge),\(withoutProof)"
        let signature = Self.authenticate(everything, by: Data(SHA256.hash(data: clientKey)))
        let proof = Self.combine(clientKey, signature)
        let expected = Self.authenticate(everything, by: Self.authenticate("Server Key", by: salted))
        return ("\(withoutProof),p=\(proof.base64EncodedString())", expected)
    }

    /// The server knows the password, too.
    static func isSignature(_ message: String, _ expected: Data) -> Bool {
        fields(of: message)["v"] == expected.base64EncodedString()
    }

    /// "r=…,s=…,i=…" by the letters.
    private static func fields(of message: String) -> [String: String] {
        let pairs = message.split(separator: ",").map { ($0.prefix(1), $0.dropFirst(2)) }
        return Dictionary(pairs.map { (String($0), String($1)) }, uniquingKeysWith: { first, _ in first })
    }

    /// `Hi` of RFC 5802, section 2.2: PBKDF2 with one block. The password is taken as it is, which is right
    /// for ASCII; others need SASLprep (RFC 4013).
    private static func saltedPassword(_ password: String, _ salt: Data, _ count: Int) -> Data {
        let key = SymmetricKey(data: Data(password.utf8))
        var block = Data(HMAC<SHA256>.authenticationCode(for: salt + Data(number: 1), using: key))
        var result = block
        for _ in 1..<count {
            block = Data(HMAC<SHA256>.authenticationCode(for: block, using: key))
            result = combine(result, block)
        }
        return result
    }

    private static func authenticate(_ text: String, by key: Data) -> Data {
        Data(HMAC<SHA256>.authenticationCode(for: Data(text.utf8), using: SymmetricKey(data: key)))
    }

    private static func combine(_ left: Data, _ right: Data) -> Data {
        Data(zip(left, right).map { $0 ^ $1 })
    }
}
