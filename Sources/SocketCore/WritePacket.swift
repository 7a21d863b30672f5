package import FoundationEssentials

/// One queued write (`GCDAsyncWritePacket`): what it sends, and how many bytes of that have been handed on.
package struct WritePacket: Sendable {
    /// What a write sends.
    package enum Payload: Sendable {
        case bytes(Data)
        case file(FileRegion)
    }

    package let payload: Payload
    package let timeout: Double
    package let tag: Int
    /// How many bytes the write has to send.
    package let count: Int
    /// Bytes handed to the kernel, or to the TLS engine.
    package private(set) var handedOn = 0
    private var reported = 0

    package init(data: Data, timeout: Double, tag: Int) {
        self.init(.bytes(data), count: data.count, timeout: timeout, tag: tag)
    }

    package init(file: FileRegion, timeout: Double, tag: Int) {
        self.init(.file(file), count: file.length, timeout: timeout, tag: tag)
    }

    private init(_ payload: Payload, count: Int, timeout: Double, tag: Int) {
        self.payload = payload
        self.timeout = timeout
        self.tag = tag
        self.count = count
    }

    var remaining: Int { count - handedOn }

    var file: FileRegion? {
        if case .file(let region) = payload { region } else { nil }
    }

    mutating func handOn(_ count: Int) {
        handedOn += count
    }

    mutating func takeProgress() -> Int? {
        guard handedOn > reported else { return nil }
        defer { reported = handedOn }
        return handedOn - reported
    }
}
