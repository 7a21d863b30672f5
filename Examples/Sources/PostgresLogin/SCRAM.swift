import Crypto
import Foundation

/// A login with SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677). The client and the server each prove that they know
/// the password without revealing it.
///
/// The proof is bound to the TLS connection, so an attacker in the middle cannot forward it.
struct SCRAM {
    static let mechanism = "SCRAM-SHA-256-PLUS"

    /// The client's first message.
    let firstMessage: String
    private let header: String
    private let firstMessageBare: String
    private let nonce: String
    private let password: String
    private let binding: [UInt8]

    /// - Parameters:
    ///   - bindingName: The registered name of the channel binding type, such as "tls-server-end-point".
    ///   - binding: The channel binding data.
    init(password: String, bindingName: String, binding: [UInt8]) {
        self.password = password
        self.binding = binding
        header = "p=\(bindingName),,"
        nonce = SymmetricKey(size: .bits192).withUnsafeBytes { Data($0) }.base64EncodedString()
        // The user name is empty because PostgreSQL takes it from the startup message.
        firstMessageBare = "n=,r=\(nonce)"
        firstMessage = header + firstMessageBare
    }

    /// Returns the client's final message and the signature that the server must reply with.
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

    /// Verifies the server's signature, which proves that it knows the password.
    static func isSignature(_ message: String, _ expected: Data) -> Bool {
        fields(of: message)["v"] == expected.base64EncodedString()
    }

    /// Parses "r=…,s=…,i=…".
    private static func fields(of message: String) -> [String: String] {
        let pairs = message.split(separator: ",").map { ($0.prefix(1), $0.dropFirst(2)) }
        return Dictionary(pairs.map { (String($0), String($1)) }, uniquingKeysWith: { first, _ in first })
    }

    /// `Hi` in RFC 5802, section 2.2: PBKDF2 with one block. The password is used unchanged, which is correct
    /// for ASCII. Other passwords need SASLprep (RFC 4013).
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
