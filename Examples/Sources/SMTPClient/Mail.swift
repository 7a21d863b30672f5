/// A mail, and its encoding for SMTP.
struct Mail {
    let sender: String
    let recipient: String
    let letter: String

    /// Whether the addresses are valid. An address with a line break could inject another command.
    var hasUsableAddresses: Bool {
        [sender, recipient].allSatisfy { address in
            address.contains("@") && address.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !"<>".utf8.contains($0) }
        }
    }
}
