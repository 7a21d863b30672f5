/// A part of the library that parses untrusted bytes, and the promises that hold for every input.
///
/// `Scripts/fuzz` runs the targets with libFuzzer. The tests run them with the inputs in `Corpora`, which
/// cover what the fuzzer has reached so far.
struct FuzzTarget: Sendable {
    let name: String
    /// The maximum length of an input in bytes.
    let maximumLength: Int
    /// Throws `FuzzFailure` if a promise does not hold. Errors of the library are expected and not thrown.
    let run: @Sendable (FuzzInput) throws -> Void

    static let all: [FuzzTarget] = [
        proxyHeader, proxyNegotiation, clientHello, handshakeMessages, dtlsDatagrams, sessions, pem, certificates, pkcs12,
        revocationLists, ocspResponses, chains, frames, hosts, controlMessages, dialogues, tlsHandshakes, dtlsHandshakes,
        handover,
    ]

    static func named(_ name: String) -> FuzzTarget? { all.first { $0.name == name } }
}

/// A promise that does not hold for an input.
struct FuzzFailure: Error, CustomStringConvertible {
    let description: String
}

func require(_ condition: Bool, _ promise: @autoclosure () -> String) throws(FuzzFailure) {
    guard condition else { throw FuzzFailure(description: promise()) }
}

/// Requires that the beginning of a message is incomplete, and that the message has the minimum length that
/// the parser states.
///
/// - Parameter minimum: Parses `count` bytes. Returns the stated minimum, or `nil` if the bytes are complete.
func requireIncompletePrefixes(of length: Int, _ minimum: (_ count: Int) -> Int?) throws(FuzzFailure) {
    for count in Set([0, 1, 3, length / 2, length - 1]) where count < length {
        guard let minimum = minimum(count) else {
            throw FuzzFailure(description: "\(count) of \(length) bytes should be incomplete")
        }
        try require((count + 1...length).contains(minimum), "the minimum is \(minimum) after \(count) of \(length) bytes")
    }
}

/// An input, read from the front. Reading past its end yields zeros and empty parts, so that every input is
/// valid.
struct FuzzInput {
    private(set) var rest: ArraySlice<UInt8>

    init(_ bytes: [UInt8]) { rest = bytes[...] }

    var isEmpty: Bool { rest.isEmpty }

    mutating func byte() -> UInt8 { rest.popFirst() ?? 0 }

    mutating func number() -> Int { Int(byte()) << 8 | Int(byte()) }

    mutating func take(_ count: Int) -> [UInt8] {
        defer { rest = rest.dropFirst(count) }
        return Array(rest.prefix(count))
    }

    /// A part that is preceded by its length in two bytes.
    mutating func part() -> [UInt8] {
        let count = number()
        return take(count)
    }

    mutating func all() -> [UInt8] { take(rest.count) }

    mutating func text() -> String { String(decoding: part(), as: UTF8.self) }

    /// Splits `bytes` at positions that the input chooses. The last piece has the remaining bytes.
    mutating func pieces(of bytes: [UInt8]) -> [[UInt8]] {
        var (pieces, rest): ([[UInt8]], ArraySlice<UInt8>) = ([], bytes[...])
        for _ in 0..<16 where !rest.isEmpty {
            let count = Int(byte()) + 1
            pieces.append(Array(rest.prefix(count)))
            rest = rest.dropFirst(count)
        }
        if !rest.isEmpty { pieces.append(Array(rest)) }
        return pieces
    }
}
