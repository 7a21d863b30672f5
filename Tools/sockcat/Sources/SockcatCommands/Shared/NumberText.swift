internal import Glibc

/// Numbers in a fixed format, without the locale.
enum NumberText {
    static func fixed(_ value: Double, digits: Int) -> String {
        withVaList([Int32(digits), value]) { list in
            var text = [CChar](repeating: 0, count: 400)  // The largest number has 309 digits.
            let count = vsnprintf(&text, text.count, "%.*f", list)
            return String(decoding: text.prefix(max(0, Int(count))).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        }
    }

    /// Adds zeros in front.
    static func padded(_ value: Int, to width: Int) -> String {
        let digits = String(value.magnitude)
        return (value < 0 ? "-" : "") + String(repeating: "0", count: max(0, width - digits.count)) + digits
    }
}
