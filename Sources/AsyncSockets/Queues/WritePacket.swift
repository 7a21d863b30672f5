internal import FoundationEssentials
internal import SocketCore

/// One queued write (`GCDAsyncWritePacket`): what it sends, and how many bytes of that have been handed on.
struct WritePacket: WaitingPacket, Sendable {
    /// The bytes to send; none when it is a file that is sent.
    let bytes: Data
    let file: FileRegion?
    let timeout: Double
    /// Answered when the write ends.
    private(set) var completion: Completion<Void>
    /// How many bytes the write has to send.
    let count: Int
    /// Bytes handed to the kernel, or to the TLS engine.
    private(set) var handedOn = 0
    private var reported = 0
    /// Bytes before these were written directly.
    private let continues: Bool

    /// - Parameter isBegun: The bytes are the rest of a write whose beginning was written directly.
    init(
        data: consuming Data, timeout: Double, completion: consuming Completion<Void>, isBegun: Bool = false
    ) {
        continues = isBegun
        count = data.count
        bytes = data
        file = nil
        self.timeout = timeout
        self.completion = completion
    }

    init(file: FileRegion, timeout: Double, completion: consuming Completion<Void>) {
        continues = false
        count = file.length
        bytes = Data()
        self.file = file
        self.timeout = timeout
        self.completion = completion
    }

    var isFile: Bool { file != nil }

    var remaining: Int { count - handedOn }

    /// The peer may get a part of it.
    var isBegun: Bool { continues || handedOn > 0 }

    /// The write goes on, and its answer was given.
    mutating func detach() {
        completion = .answered
    }

    /// The waiter, which is to be answered now: the write goes on without one.
    mutating func takeWaiter() -> (any OperationWaiter<Void>)? {
        guard case .waiter(let waiter) = completion else { return nil }
        detach()
        return waiter
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
