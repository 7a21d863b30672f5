package import FoundationEssentials

/// One queued write (`GCDAsyncWritePacket`): its bytes, and how many of them have been handed on.
package struct WritePacket: Sendable {
    package let data: Data
    package let timeout: Double
    package let tag: Int
    /// Bytes handed to the kernel, or to the TLS engine.
    package fileprivate(set) var handedOn = 0

    package init(data: Data, timeout: Double, tag: Int) {
        self.data = data
        self.timeout = timeout
        self.tag = tag
    }

    private var reported = 0

    var remaining: Int { data.count - handedOn }
}

extension WritePacket {
    mutating func handOn(_ count: Int) {
        handedOn += count
    }

    mutating func takeProgress() -> Int? {
        guard handedOn > reported else { return nil }
        defer { reported = handedOn }
        return handedOn - reported
    }
}
