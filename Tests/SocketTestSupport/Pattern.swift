package import FoundationEssentials

/// Returns bytes that are easy to distinguish from others.
///
/// Copies blocks, because computing a million bytes one by one takes a minute without optimization and with a
/// sanitizer, and occupies one of two threads.
package func pattern(_ count: Int) -> Data {
    var bytes = Data(capacity: count)
    while bytes.count < count { bytes += patternBlock.prefix(count - bytes.count) }
    return bytes
}

/// The length is prime, so that no two blocks of a buffer start alike.
private let patternBlock = Data((0..<65_521).map { UInt8(truncatingIfNeeded: $0 &* 37 &+ $0 >> 11) })
