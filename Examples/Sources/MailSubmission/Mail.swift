import Foundation

/// A mail, and its encoding for SMTP.
struct Mail {
    let sender: String
    let recipient: String
    let letter: Data

    /// Whether the addresses are valid. An address with a line break could inject another command.
    var hasUsableAddresses: Bool {
        [sender, recipient].allSatisfy { address in
            address.contains("@") && address.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !"<>".utf8.contains($0) }
        }
    }

    /// The letter with CRLF line endings, dot-stuffed and terminated by a dot (RFC 5321, section 4.5.2).
    var transparentLetter: Data {
        var result = Data()
        var lines = letter.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        if lines.last?.isEmpty == true { lines.removeLast() }
        for line in lines {
            if line.first == UInt8(ascii: ".") { result.append(UInt8(ascii: ".")) }
            result.append(line.last == UInt8(ascii: "\r") ? line.dropLast() : line)
            result.append(contentsOf: "\r\n".utf8)
        }
        result.append(contentsOf: ".\r\n".utf8)
        return result
    }
}
