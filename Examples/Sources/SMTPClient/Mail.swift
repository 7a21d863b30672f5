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

    // Article: letter
    /// The letter with CRLF line endings, dot-stuffed and terminated by a dot (RFC 5321, section 4.5.2).
    var transparentLetter: String {
        var lines = letter.split(omittingEmptySubsequences: false) { $0 == "\n" || $0 == "\r\n" }
        if lines.last?.isEmpty == true { lines.removeLast() }
        return lines.map { ($0.hasPrefix(".") ? "." : "") + $0 + "\r\n" }.joined() + ".\r\n"
    }
    // Article: end
}
