// Rules for the BIO:
//  1. OpenSSL reads the bytes that the owner appends to `received`, and writes to `output`. The BIO is the
//     only layer between OpenSSL and the network.
//  2. If no bytes are available, the BIO reports "retry", and after the end of the transport it reports end
//     of file. `BIO_CTRL_EOF` also reports the end of file, so that OpenSSL treats an early end of the
//     transport during the handshake as an error. After the handshake, end of file is withheld from OpenSSL
//     (`withholdsEnd`), because OpenSSL would then refuse to write and would discard the session. The engine
//     detects truncation itself.
//  3. While `isHeld`, OpenSSL receives no bytes (see TrustGate).
//  4. A write reports "retry" only while OpenSSL reads or performs the handshake (`limitsOutput`), and only
//     if `output` is far above the limit that the engine checks before it writes. Inside `SSL_write`, a retry
//     would leave a record encrypted but not sent.
//  5. OpenSSL's response to the end of the transport is discarded, because the peer has closed. When this
//     side gives up (`abandon()`), the response is sent to the peer. While alerts are in plaintext, it is
//     replaced by the alerts user_canceled and close_notify (RFC 8446, 6.1).
//  6. A poisoned BIO (`poisonGiven`) returns a header that no TLS version accepts. OpenSSL then stops in the
//     middle of a call and sends an alert.

internal import COpenSSL
internal import Glibc
internal import SocketBuffers

/// Holds the bytes between OpenSSL and the owner of an engine. It is the data of the engine's only `BIO`.
///
/// This is a separate class, so that the callbacks never access a property that the engine is using.
final class EngineBIO {
    /// The old `sslPreBuffer`: ciphertext that OpenSSL has not read yet.
    let received = PreBuffer()
    let output = PreBuffer()
    // Unchecked: the engine has one user at a time, and accesses no property while OpenSSL calls back. These
    // properties are read for every record.
    /// The first bytes of the connection, which distinguish TLS from other protocols. Empty once the peer is
    /// known to speak TLS.
    @exclusivity(unchecked) private(set) var firstBytes: [UInt8] = []
    @exclusivity(unchecked) private var remembersFirstBytes = true
    /// The number of handshake bytes that OpenSSL has read. On a server, bytes before the end of the
    /// ClientHello are not counted.
    @exclusivity(unchecked) var handshakeByteCount = 0
    @exclusivity(unchecked) var hasReachedEndOfFile = false
    /// Whether end of file is withheld from OpenSSL, because the handshake is complete.
    @exclusivity(unchecked) var withholdsEnd = false
    @exclusivity(unchecked) var isHeld = false
    @exclusivity(unchecked) var limitsOutput = false
    /// How many bytes of the poison OpenSSL has read, or `nil` if the BIO is not poisoned.
    @exclusivity(unchecked) var poisonGiven: UInt8?
    /// The DTLS records in `received` and `output` (`RecordQueues`), or `nil` for TLS.
    let records: RecordQueues?

    /// Whether output is discarded, because OpenSSL has read the end of the transport and the peer would not
    /// receive the output.
    @exclusivity(unchecked) private(set) var dropsOutput = false
    @exclusivity(unchecked) private(set) var isAbandoned = false

    /// The number of bytes in `output` at which the BIO stops accepting data while OpenSSL reads. This is a
    /// backstop, since the engine limits the messages that cause output.
    static let outputLimitWhileReading = 512 * 1024

    /// Whether OpenSSL has read bytes from the peer, or the end of the transport.
    @exclusivity(unchecked) var hasHeardFromPeer = false

    init(over transport: TLSTransport = .stream) {
        records = transport == .datagrams ? RecordQueues() : nil
    }

    /// Reports the end of the transport to OpenSSL, so that it sends its last alerts.
    func abandon() {
        received.reset()
        records?.received.removeAll()
        isHeld = false
        isAbandoned = true
        hasReachedEndOfFile = true
    }

    /// Whether the peer has closed its sending side and `received` contains no application data. OpenSSL must
    /// not process the records yet.
    func hasEndedWithoutData(on ssl: OpaquePointer) -> Bool {
        let isTLS13 = SSL_version(ssl) == TLS1_3_VERSION
        return hasReachedEndOfFile
            && !ClientRecords.holdData(
                received.readableBytes, sealedAlertLength: isTLS13 ? ClientRecords.sealedAlertLength(on: ssl) : nil)
    }

    func becomePoisoned() {
        if poisonGiven == nil { poisonGiven = 0 }
    }

    fileprivate func read(into buffer: UnsafeMutableRawPointer, _ capacity: Int) -> Transfer {
        if let poisonGiven { return readPoison(from: Int(poisonGiven), into: buffer, capacity) }
        if isHeld { return .tryAgain }
        let count = min(capacity, received.count)
        guard count > 0, let source = received.readableBytes.baseAddress else {
            guard hasReachedEndOfFile, !withholdsEnd || isAbandoned else { return .tryAgain }
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

    /// Returns the alerts user_canceled and close_notify if `record` is a plaintext alert, and otherwise
    /// `nil`.
    private static func cancellation(insteadOf record: UnsafeRawBufferPointer) -> [UInt8]? {
        guard AlertRecord.matches(record) else { return nil }
        return AlertRecord.bytes(.userCanceled, .warning) + AlertRecord.bytes(.closeNotify, .warning)
    }

    var isAtEndOfFile: Bool {
        hasReachedEndOfFile && !withholdsEnd && received.isEmpty && poisonGiven == nil
    }

    /// TLS 1.3 rejects the record type, and TLS 1.2 rejects the length.
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
        guard remembersFirstBytes else { return }
        handshakeByteCount += bytes.count
        guard firstBytes.count < Self.firstByteLimit else { return }
        hasHeardFromPeer = true
        firstBytes.append(contentsOf: bytes.prefix(Self.firstByteLimit - firstBytes.count))
    }

    private static let firstByteLimit = 24

    enum Transfer {
        case moved(Int)
        case tryAgain
        case endOfFile
    }
}

// MARK: - BIO method

extension EngineBIO {
    /// Strips a DTLS handshake header (12 bytes) down to four bytes, the size of a TLS header. The last three
    /// bytes of a DTLS header are the fragment length, which equals the message length here.
    func message(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        guard records != nil, bytes.count >= 12 else { return bytes }
        return UnsafeRawBufferPointer(rebasing: bytes.dropFirst(8))
    }

    /// Creates a `BIO` over this object. The object must outlive the BIO, or be removed from it with
    /// `detach(_:)`.
    func makeBIO() -> OpaquePointer? {
        let chosen = records == nil ? Self.method : Self.datagramMethod
        guard let method = chosen.pointer, let bio = BIO_new(method) else { return nil }
        BIO_set_data(bio, Unmanaged.passUnretained(self).toOpaque())
        BIO_set_init(bio, 1)
        return bio
    }

    static func detach(_ bio: OpaquePointer?) {
        if let bio { BIO_set_data(bio, nil) }
    }

    private static let method = Method {
        EngineBIO.answerRead($0, $1, $2)
    } write: {
        EngineBIO.answerWrite($0, $1, $2)
    } control: { bio, command, _, _ in
        EngineBIO.answerControl(bio, command)
    }

    struct Method: @unchecked Sendable {
        typealias Read = @convention(c) (OpaquePointer?, UnsafeMutablePointer<CChar>?, Int32) -> Int32
        typealias Write = @convention(c) (OpaquePointer?, UnsafePointer<CChar>?, Int32) -> Int32
        typealias Control = @convention(c) (OpaquePointer?, Int32, Int, UnsafeMutableRawPointer?) -> Int

        // Unchecked: it is created once and then only read.
        let pointer: OpaquePointer?

        init(read: @escaping Read, write: @escaping Write, control: @escaping Control) {
            let index = BIO_get_new_index()
            let method = index == -1 ? nil : BIO_meth_new(index | BIO_TYPE_SOURCE_SINK, "AsyncSockets")
            let isComplete =
                method != nil
                && BIO_meth_set_read(method, read) == 1 && BIO_meth_set_write(method, write) == 1
                && BIO_meth_set_ctrl(method, control) == 1
            // Without a method, creating an engine fails with an error.
            pointer = isComplete ? method : nil
        }
    }

    /// Returns `nil` if `bio` is detached. The reference is not retained, since that would cost more than the
    /// rest of a callback. The engine, which is calling OpenSSL, keeps this object alive.
    static func owner(of bio: OpaquePointer?) -> Unmanaged<EngineBIO>? {
        guard let bio, let data = BIO_get_data(bio) else { return nil }
        return Unmanaged.fromOpaque(data)
    }

    private static func answerRead(_ bio: OpaquePointer?, _ buffer: UnsafeMutablePointer<CChar>?, _ capacity: Int32) -> Int32 {
        guard let engineBIO = owner(of: bio), let buffer, capacity > 0 else { return -1 }
        COpenSSL_BIO_clearRetryFlags(bio)
        return answer(engineBIO._withUnsafeGuaranteedRef { $0.read(into: buffer, Int(capacity)) }, on: bio)
    }

    static func answer(_ transfer: Transfer, on bio: OpaquePointer?) -> Int32 {
        switch transfer {
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

    /// Most calls query whether the kernel does the encryption (`BIO_CTRL_GET_KTLS_SEND`), several times for
    /// each record.
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
