internal import ArgumentParser
internal import AsyncSockets

/// A pre-shared key on the command line: "IDENTITY:HEX", or "@FILE" for a file with that text.
struct PreSharedKeyArgument: ExpressibleByArgument, Equatable, Sendable {
    private let text: String

    init?(argument: String) {
        guard argument.hasPrefix("@") || argument.contains(":") else { return nil }
        text = argument
    }

    func key() throws -> TLSPreSharedKey {
        let isFile = text.hasPrefix("@")
        let source = isFile ? "\"\(text.dropFirst())\"" : "--psk"
        let contents = isFile ? try LocalFile.text(String(text.dropFirst())) : text
        let line = TextLines(contents).lazy.map(\.trimmed).first { !$0.isEmpty } ?? ""
        guard let colon = line.lastIndex(of: ":"), let bytes = Hexadecimal.bytes(String(line[line.index(after: colon)...])) else {
            throw Failure.usage("\(source) is not a pre-shared key", advice: "write IDENTITY:HEX, with the key in hexadecimal")
        }
        return try TLSPreSharedKey(identity: String(line[..<colon]), key: bytes)
    }
}
