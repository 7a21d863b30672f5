package import FoundationEssentials

/// Bytes that are easily told from others.
///
/// Blocks are copied: without optimization and with a sanitizer, a million bytes that are computed one by one
/// take a minute, and hold one of two threads meanwhile.
package func pattern(_ count: Int) -> Data {
    var bytes = Data(capacity: count)
    while bytes.count < count { bytes += patternBlock.prefix(count - bytes.count) }
    return bytes
}

/// As long as a prime, so that no two blocks of a buffer begin alike.
private let patternBlock = Data((0..<65_521).map { UInt8(truncatingIfNeeded: $0 &* 37 &+ $0 >> 11) })
