// Rules of the BIO:
//  1. OpenSSL reads what the owner appended to `received` and appends to `output`; nothing else is between it
//     and the network.
//  2. No bytes: "try again", unless the transport has ended, then end of file. `BIO_CTRL_EOF` answers
//     likewise: it is what turns an end without close_notify into an error.
//  3. While `isHeld`, nothing is read (see TrustGate).
//  4. "Try again" for writing is only said while OpenSSL reads or shakes hands (`limitsOutput`), and only far
//     over the limit that the engine checks before it writes: said inside `SSL_write`, a record would be
//     encrypted and not sent.
//  5. What OpenSSL writes once it has been told of the end, as an answer to that, is dropped: the peer has
//     closed. When it is this side that gives up (`abandon()`), it is what the peer gets; as long as alerts
//     are in plaintext, in the words of RFC 8446, 6.1.
//  6. Once poisoned (`poisonGiven`), OpenSSL is given a header that no TLS has: the way to make it stop in
//     the middle of a call and send an alert.

internal import COpenSSL
internal import Glibc
internal import SocketBuffers

/// The bytes between OpenSSL and the owner of an engine; the data of its one `BIO`.
///
/// A class of its own, so that the callbacks never touch a property that the engine is using.
final class EngineBIO {
    /// The old `sslPreBuffer`: ciphertext that OpenSSL has not read yet.
    let received = PreBuffer()
    let output = PreBuffer()
    // Unchecked: the engine has one user at a time, and no access is under way while OpenSSL calls back. What
    // is below is looked at for every record.
    /// The first bytes ever read, which tell TLS from other protocols; empty once it is known to be TLS.
    @exclusivity(unchecked) private(set) var firstBytes: [UInt8] = []
    @exclusivity(unchecked) private var remembersFirstBytes = true
    @exclusivity(unchecked) var hasReachedEndOfFile = false
    @exclusivity(unchecked) var isHeld = false
    @exclusivity(unchecked) var limitsOutput = false
    /// How much of the poison OpenSSL has been given; nil: it gets none.
    @exclusivity(unchecked) private var poisonGiven: UInt8?

    /// OpenSSL has been told of the end, and still reads: it has nothing to say that anyone would hear.
    @exclusivity(unchecked) private(set) var dropsOutput = false
    @exclusivity(unchecked) private var isAbandoned = false

    /// More output than this is not taken while OpenSSL reads: a backstop, since the engine bounds what
    /// provokes it.
    static let outputLimitWhileReading = 512 * 1024

    /// Something of the peer has reached OpenSSL, if only its end.
    @exclusivity(unchecked) private(set) var hasHeardFromPeer = false

    /// Has OpenSSL believe that the transport has ended, so that it says goodbye.
    func abandon() {
        received.reset()
        isHeld = false
        isAbandoned = true
        hasReachedEndOfFile = true
    }

    func becomePoisoned() {
        if poisonGiven == nil { poisonGiven = 0 }
    }

    fileprivate func read(into buffer: UnsafeMutableRawPointer, _ capacity: Int) -> Transfer {
        if let poisonGiven { return readPoison(from: Int(poisonGiven), into: buffer, capacity) }
        if isHeld { return .tryAgain }
        let count = min(capacity, received.count)
        guard count > 0, let source = received.readableBytes.baseAddress else {
            guard hasReachedEndOfFile else { return .tryAgain }
            hasHeardFromPeer = true
            dropsOutput = !isAbandoned
            return .endOfFile
        }
        memcpy(buffer, source, count)
        rememberFirstBytes(UnsafeRawBufferPointer(start: buffer, count: count))
        received.consume(count)
        return .moved(count)
    }

    fileprivate func write(_ bytes: UnsafeRawBufferPointer) -> Transfer {
        if dropsOutput, limitsOutput { return .moved(bytes.count) }
        if isAbandoned, let goodbye = Self.cancellation(insteadOf: bytes) {
            goodbye.withUnsafeBytes { output.append($0) }
            return .moved(bytes.count)
        }
        if limitsOutput, output.count >= Self.outputLimitWhileReading { return .tryAgain }
        output.append(bytes)
        return .moved(bytes.count)
    }

    /// The alerts user_canceled and close_notify, when the record is an alert in plaintext.
    ///
    /// Their version is that of TLS 1.2 and 1.3, which the peer may have chosen already: OpenSSL refuses
    /// those of another.
    private static func cancellation(insteadOf record: UnsafeRawBufferPointer) -> [UInt8]? {
        guard record.count == 7, record[0] == UInt8(SSL3_RT_ALERT) else { return nil }
        return [TLSAlert.userCanceled, .closeNotify].flatMap { [21, 3, 3, 0, 2, UInt8(SSL3_AL_WARNING), $0.rawValue] }
    }

    fileprivate var isAtEndOfFile: Bool {
        hasReachedEndOfFile && received.isEmpty && poisonGiven == nil
    }

    /// TLS 1.3 objects to its type, TLS 1.2 to its length.
    private static let poison: [UInt8] = [0x16, 0x03, 0x03, 0xFF, 0xFF]

    private func readPoison(from start: Int, into buffer: UnsafeMutableRawPointer, _ capacity: Int) -> Transfer {
        let bytes = Self.poison[start...].prefix(capacity)
        guard !bytes.isEmpty else { return .tryAgain }
        UnsafeMutableRawBufferPointer(start: buffer, count: capacity).copyBytes(from: bytes)
        poisonGiven = UInt8(start + bytes.count)
        return .moved(bytes.count)
    }

    func forgetFirstBytes() {
        firstBytes = []
        remembersFirstBytes = false
    }

    private func rememberFirstBytes(_ bytes: UnsafeRawBufferPointer) {
        guard remembersFirstBytes, firstBytes.count < Self.firstByteLimit else { return }
        hasHeardFromPeer = true
        firstBytes.append(contentsOf: bytes.prefix(Self.firstByteLimit - firstBytes.count))
    }

    private static let firstByteLimit = 24

    fileprivate enum Transfer {
        case moved(Int)
        case tryAgain
        case endOfFile
    }
}

// MARK: - The method

extension EngineBIO {
    /// A `BIO` over this object, which must outlive it or be cleared from it by `detach(_:)`.
    func makeBIO() -> OpaquePointer? {
        guard let method = Self.method.pointer, let bio = BIO_new(method) else { return nil }
        BIO_set_data(bio, Unmanaged.passUnretained(self).toOpaque())
        BIO_set_init(bio, 1)
        return bio
    }

    static func detach(_ bio: OpaquePointer?) {
        if let bio { BIO_set_data(bio, nil) }
    }

    /// The one method of the process.
    private static let method = Method()

    private struct Method: @unchecked Sendable {
        // Unchecked: made once, then only read.
        let pointer: OpaquePointer?

        init() {
            let index = BIO_get_new_index()
            let method = index == -1 ? nil : BIO_meth_new(index | BIO_TYPE_SOURCE_SINK, "AsyncSockets")
            let isComplete =
                method != nil
                && BIO_meth_set_read(method) { bio, buffer, capacity in EngineBIO.answerRead(bio, buffer, capacity) } == 1
                && BIO_meth_set_write(method) { bio, bytes, count in EngineBIO.answerWrite(bio, bytes, count) } == 1
                && BIO_meth_set_ctrl(method) { bio, command, _, _ in EngineBIO.answerControl(bio, command) } == 1
            // Without it no engine can be made, and each says so.
            pointer = isComplete ? method : nil
        }
    }

    /// Nil when `bio` has been detached. The reference is not counted, which would cost more than the rest of
    /// a callback: the engine, which is calling OpenSSL, holds this object.
    private static func owner(of bio: OpaquePointer?) -> Unmanaged<EngineBIO>? {
        guard let bio, let data = BIO_get_data(bio) else { return nil }
        return Unmanaged.fromOpaque(data)
    }

    private static func answerRead(_ bio: OpaquePointer?, _ buffer: UnsafeMutablePointer<CChar>?, _ capacity: Int32) -> Int32 {
        guard let engineBIO = owner(of: bio), let buffer, capacity > 0 else { return -1 }
        COpenSSL_BIO_clearRetryFlags(bio)
        switch engineBIO._withUnsafeGuaranteedRef({ $0.read(into: buffer, Int(capacity)) }) {
        case .moved(let count): return Int32(count)
        case .endOfFile: return 0
        case .tryAgain:
            COpenSSL_BIO_setRetryRead(bio)
            return -1
        }
    }

    private static func answerWrite(_ bio: OpaquePointer?, _ bytes: UnsafePointer<CChar>?, _ count: Int32) -> Int32 {
        guard let engineBIO = owner(of: bio), let bytes, count > 0 else { return -1 }
        COpenSSL_BIO_clearRetryFlags(bio)
        let record = UnsafeRawBufferPointer(start: bytes, count: Int(count))
        switch engineBIO._withUnsafeGuaranteedRef({ $0.write(record) }) {
        case .moved(let count): return Int32(count)
        case .tryAgain, .endOfFile:
            COpenSSL_BIO_setRetryWrite(bio)
            return -1
        }
    }

    /// Most questions are whether the kernel encrypts (`BIO_CTRL_GET_KTLS_SEND`), several for each record.
    private static func answerControl(_ bio: OpaquePointer?, _ command: Int32) -> Int {
        switch command {
        case BIO_CTRL_FLUSH: 1
        case BIO_CTRL_EOF: owner(of: bio)?._withUnsafeGuaranteedRef { $0.isAtEndOfFile ? 1 : 0 } ?? 0
        case BIO_CTRL_PENDING: owner(of: bio)?._withUnsafeGuaranteedRef { $0.received.count } ?? 0
        case BIO_CTRL_WPENDING: owner(of: bio)?._withUnsafeGuaranteedRef { $0.output.count } ?? 0
        default: 0
        }
    }
}
