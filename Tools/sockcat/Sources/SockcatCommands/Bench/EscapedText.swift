internal import ArgumentParser
internal import FoundationEssentials
internal import Glibc

/// Text on the command line in which \r, \n, \t, \0, \\ and \xHH stand for special characters.
struct EscapedText: ExpressibleByArgument, Equatable, Sendable {
    let bytes: Data

    init?(argument: String) {
        var bytes = Data()
        var rest = Array(argument.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "\\") else {
                bytes.append(byte)
                continue
            }
            guard let escaped = Self.escaped(&rest) else { return nil }
            bytes.append(escaped)
        }
        self.bytes = bytes
    }

    private static func escaped(_ rest: inout ArraySlice<UInt8>) -> UInt8? {
        switch rest.popFirst() {
        case UInt8(ascii: "r"): return 13
        case UInt8(ascii: "n"): return 10
        case UInt8(ascii: "t"): return 9
        case UInt8(ascii: "0"): return 0
        case UInt8(ascii: "\\"): return UInt8(ascii: "\\")
        case UInt8(ascii: "x"):
            let digits = rest.prefix(2)
            rest = rest.dropFirst(2)
            return digits.count == 2 ? UInt8(String(decoding: digits, as: UTF8.self), radix: 16) : nil
        default: return nil
        }
    }
}
