extension [UInt8] {
    /// The text in UTF-8, with CR LF.
    init(line: String) {
        self = Array(line.utf8) + [13, 10]
    }
}

extension String {
    /// The text with ASCII letters in upper case and question marks instead of bytes that are not ASCII, for
    /// comparisons.
    var inUpperCase: String {
        String(decoding: utf8.map { $0 < 128 ? $0.inUpperCase : UInt8(ascii: "?") }, as: UTF8.self)
    }

    /// The parts between spaces, without empty parts.
    var words: [String] { utf8.split(separator: UInt8(ascii: " ")).map { String(Substring($0)) } }

    /// The first word, in upper case.
    var keyword: String? { words.first?.inUpperCase }

    /// Whether the text starts with a keyword in upper or lower case.
    func startsWith(keyword: String) -> Bool {
        utf8.count >= keyword.utf8.count
            && String(decoding: utf8.prefix(keyword.utf8.count), as: UTF8.self).inUpperCase == keyword
    }
}

extension [String] {
    /// Whether one of the words is the keyword, in upper or lower case.
    func contains(keyword: String) -> Bool { contains { $0.inUpperCase == keyword } }
}

extension UInt8 {
    fileprivate var inUpperCase: UInt8 { (97...122).contains(self) ? self - 32 : self }
}

extension ArraySlice<UInt8> {
    /// Returns the unsigned integer in the first bytes, in network byte order. `nil` if there are fewer.
    func bigEndian(bytes count: Int) -> Int? {
        guard self.count >= count else { return nil }
        return prefix(count).reduce(0) { $0 << 8 | Int($1) }
    }

    /// Returns the unsigned integer in the first bytes, in little-endian byte order.
    func littleEndian(bytes count: Int) -> Int? {
        guard self.count >= count else { return nil }
        return prefix(count).reversed().reduce(0) { $0 << 8 | Int($1) }
    }
}

extension [UInt8] {
    init(bigEndian value: Int, bytes count: Int) {
        self = (0..<count).reversed().map { UInt8(truncatingIfNeeded: value >> ($0 * 8)) }
    }

    init(littleEndian value: Int, bytes count: Int) {
        self = (0..<count).map { UInt8(truncatingIfNeeded: value >> ($0 * 8)) }
    }
}
