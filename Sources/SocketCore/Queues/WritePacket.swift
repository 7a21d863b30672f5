package import FoundationEssentials

/// One queued write (`GCDAsyncWritePacket`): what it sends, and how many bytes of that have been handed on.
package struct WritePacket: Sendable {
    /// The bytes to send; none when it is a file that is sent.
    let bytes: Data
    let file: FileRegion?
    package let timeout: Double
    /// Who is answered when the write ends.
    package private(set) var completion: Completion<Void>
    /// How many bytes the write has to send.
    package let count: Int
    /// Bytes handed to the kernel, or to the TLS engine.
    package private(set) var handedOn = 0
    private var reported = 0

    package init(data: Data, timeout: Double, completion: Completion<Void>) {
        self.init(data, nil, count: data.count, timeout: timeout, completion)
    }

    /// A write that answers to the delegate.
    package init(data: Data, timeout: Double, tag: Int) {
        self.init(data, nil, count: data.count, timeout: timeout, .delegate(tag: tag))
    }

    /// A file that answers to the delegate.
    package init(file: FileRegion, timeout: Double, tag: Int) {
        self.init(Data(), file, count: file.length, timeout: timeout, .delegate(tag: tag))
    }

    private init(_ bytes: Data, _ file: FileRegion?, count: Int, timeout: Double, _ completion: Completion<Void>) {
        self.bytes = bytes
        self.file = file
        self.timeout = timeout
        self.completion = completion
        self.count = count
    }

    package var isFile: Bool { file != nil }

    var remaining: Int { count - handedOn }

    /// The write goes on, and its answer was given.
    mutating func detach() {
        completion = .answered
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
