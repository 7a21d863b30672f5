internal import FoundationEssentials
internal import SocketCore

/// A queued write (`GCDAsyncWritePacket`): its data, and how many bytes have been handed on.
struct WritePacket: WaitingPacket, Sendable {
    /// Copying fewer bytes than this costs no more than passing them to the kernel as a separate part.
    static var smallLimit: Int { 4096 }

    /// The bytes to send. Empty if the write sends a file.
    let bytes: Data
    let file: FileRegion?
    let timeout: Double
    private(set) var completion: Completion<Void>
    let count: Int
    /// The number of bytes handed to the kernel or to the TLS engine.
    private(set) var handedOn = 0
    private var reported = 0
    /// Whether earlier bytes of this write were sent directly.
    private let continues: Bool

    /// - Parameter isBegun: Whether `data` is the rest of a write, after its first part was sent directly.
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

    /// Whether part of the write has been handed on and may reach the peer.
    var isBegun: Bool { continues || handedOn > 0 }

    /// The delegate's tag, or `nil` if the write is large or empty, or was not requested by the delegate.
    var joinableTag: Int? {
        guard count > 0, count < WritePacket.smallLimit, file == nil, case .delegate(let tag) = completion else { return nil }
        return tag
    }

    /// Marks the result as already delivered. The write continues.
    mutating func detach() {
        completion = .answered
    }

    /// Returns the waiter, which the caller must resume now. The write continues without a waiter.
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
