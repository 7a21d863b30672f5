import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Reads with arguments at their limits. Each read completes, is dropped without a callback, or fails.
@Suite(.timeLimit(.patient)) struct BoundaryTests {
    enum Kind: Sendable {
        case any(maxLength: UInt)
        case length(UInt)
        case delimiter(String, maxLength: UInt)
    }

    enum Outcome: Sendable {
        case reads(String)
        case dropped
        case ends(GCDAsyncSocketError.Code)
    }

    struct Case: Sendable, CustomTestStringConvertible {
        let testDescription: String
        var kind: Kind
        var outcome: Outcome
        var sent = "ab\r\ncd"
        /// The initial contents of the caller's buffer. `nil` if the read has no buffer.
        var buffer: String?
        var offset: UInt = 0
        /// The contents of the buffer after the read.
        var filled: String?
        var timeout: TimeInterval = -1
        var tag = 1

        init(
            _ name: String, _ kind: Kind, _ outcome: Outcome, sent: String = "ab\r\ncd", buffer: String? = nil,
            offset: UInt = 0, filled: String? = nil, timeout: TimeInterval = -1, tag: Int = 1
        ) {
            testDescription = name
            (self.kind, self.outcome, self.sent, self.buffer) = (kind, outcome, sent, buffer)
            (self.offset, self.filled, self.timeout, self.tag) = (offset, filled, timeout, tag)
        }
    }

    static let lengths = [
        Case("any, no limit", .any(maxLength: 0), .reads("ab\r\ncd")),
        Case("any, one byte", .any(maxLength: 1), .reads("a")),
        Case("any, all but one", .any(maxLength: 5), .reads("ab\r\nc")),
        Case("any, exactly all", .any(maxLength: 6), .reads("ab\r\ncd")),
        Case("any, the largest limit", .any(maxLength: .max), .reads("ab\r\ncd")),
        Case("no bytes", .length(0), .dropped),
        Case("one byte", .length(1), .reads("a")),
        Case("all bytes", .length(6), .reads("ab\r\ncd")),
    ]

    static let delimiters = [
        Case("no limit", .delimiter("\r\n", maxLength: 0), .reads("ab\r\n")),
        Case("limit at the end of the delimiter", .delimiter("\r\n", maxLength: 4), .reads("ab\r\n")),
        Case("limit in the delimiter", .delimiter("\r\n", maxLength: 3), .ends(.readMaxedOutError)),
        Case("limit as long as the delimiter", .delimiter("\r\n", maxLength: 2), .ends(.readMaxedOutError)),
        Case("limit shorter than the delimiter", .delimiter("\r\n", maxLength: 1), .dropped),
        Case("nothing but the delimiter", .delimiter("\r\n", maxLength: 2), .reads("\r\n"), sent: "\r\nabcd"),
        Case("a delimiter of one byte, limit of one", .delimiter("a", maxLength: 1), .reads("a")),
        Case("an empty delimiter", .delimiter("", maxLength: 0), .dropped),
        Case("an empty delimiter with a limit", .delimiter("", maxLength: 9), .dropped),
        Case("the largest limit", .delimiter("d", maxLength: .max), .reads("ab\r\ncd")),
    ]

    static let buffers = [
        Case("at the beginning", .length(2), .reads("ab"), buffer: "xyz", filled: "abz"),
        Case("in the middle", .length(1), .reads("a"), buffer: "xyz", offset: 1, filled: "xaz"),
        Case("up to the end", .length(2), .reads("ab"), buffer: "xyz", offset: 1, filled: "xab"),
        Case("across the end", .length(2), .reads("ab"), buffer: "xyz", offset: 2, filled: "xyab"),
        Case("at the end", .delimiter("\r\n", maxLength: 0), .reads("ab\r\n"), buffer: "xyz", offset: 3, filled: "xyzab\r\n"),
        Case("after the end", .length(2), .dropped, buffer: "xyz", offset: 4, filled: "xyz"),
        Case("far after the end", .any(maxLength: 0), .dropped, buffer: "xyz", offset: .max, filled: "xyz"),
        Case("an empty buffer", .any(maxLength: 3), .reads("ab\r"), buffer: "", filled: "ab\r"),
        Case("after an empty buffer", .any(maxLength: 3), .dropped, buffer: "", offset: 1, filled: ""),
        Case("an offset without a buffer", .length(2), .reads("ab"), offset: 7),
        Case("an offset without a buffer, delimiter", .delimiter("b", maxLength: 2), .reads("ab"), offset: .max),
    ]

    static let timesAndTags = [
        Case("a little below zero", .length(2), .reads("ab"), timeout: -0.001),
        Case("the least time", .length(2), .reads("ab"), timeout: -.greatestFiniteMagnitude),
        Case("the most time", .length(2), .reads("ab"), timeout: .greatestFiniteMagnitude),
        Case("unlimited time", .any(maxLength: 0), .reads("ab\r\ncd"), timeout: .infinity),
        Case("a time that expires", .length(7), .ends(.readTimeoutError), timeout: 0.01),
        Case("no time", .length(7), .ends(.readTimeoutError), timeout: 0),
        Case("the least tag", .length(1), .reads("a"), tag: .min),
        Case("a negative tag", .delimiter("b", maxLength: 2), .reads("ab"), tag: -1),
        Case("zero as the tag", .any(maxLength: 1), .reads("a"), tag: 0),
        Case("the greatest tag", .length(1), .reads("a"), tag: .max),
    ]

    @Test(arguments: lengths + delimiters + buffers + timesAndTags)
    func aReadAtItsLimits(_ plan: Case) async throws {
        let peer = try ScriptedPeer.listening([.send(plan.sent), .expectEnd])
        let diary = Diary()
        let socket = makeSocket(diary)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        try await diary.wait(for: "connected to 127.0.0.1")
        let buffer = plan.buffer.map { NSMutableData(data: Data($0.utf8)) }
        begin(plan, on: socket, buffer)
        // This read receives the rest, or all bytes if the first read was dropped.
        let taken = if case .reads(let text) = plan.outcome { text.utf8.count } else { 0 }
        if taken < plan.sent.utf8.count {
            socket.readData(toLength: UInt(plan.sent.utf8.count - taken), withTimeout: -1, tag: 77)
        }
        switch plan.outcome {
        case .reads(let text):
            try await diary.wait(for: "read \(plan.tag): \(text)")
            if taken < plan.sent.utf8.count {
                try await diary.wait(for: "read 77: " + String(decoding: plan.sent.utf8.dropFirst(taken), as: UTF8.self))
            }
            #expect(socket.isConnected)
        case .dropped:
            try await diary.wait(for: "read 77: \(plan.sent)")
            #expect(!diary.has(prefix: "read \(plan.tag):") && socket.isConnected)
        case .ends(let code):
            let error = try #require(try await diary.end())
            #expect(error.domain == GCDAsyncSocketErrorDomain && error.code == code.rawValue)
            #expect(!diary.has(prefix: "read ") && socket.isDisconnected)
        }
        if let buffer { #expect(String(decoding: buffer as Data, as: UTF8.self) == plan.filled) }
        socket.disconnect()
        peer.stop()
    }

    private func begin(_ plan: Case, on socket: GCDAsyncSocket, _ buffer: NSMutableData?) {
        switch plan.kind {
        case .any(let limit):
            socket.readData(
                withTimeout: plan.timeout, buffer: buffer, bufferOffset: plan.offset, maxLength: limit, tag: plan.tag)
        case .length(let count):
            socket.readData(toLength: count, withTimeout: plan.timeout, buffer: buffer, bufferOffset: plan.offset, tag: plan.tag)
        case .delimiter(let text, let limit):
            socket.readData(
                to: Data(text.utf8), withTimeout: plan.timeout, buffer: buffer, bufferOffset: plan.offset, maxLength: limit,
                tag: plan.tag)
        }
    }

    // MARK: - Sockets that are not in use

    /// A dropped read releases its buffer.
    @Test func aReadOfAnUnusedSocketKeepsNothing() {
        let diary = Diary()
        let socket = makeSocket(diary)
        weak var kept: NSMutableData?
        do {
            let buffer = NSMutableData()
            kept = buffer
            socket.readData(withTimeout: -1, buffer: buffer, bufferOffset: 0, tag: 1)
            socket.readData(toLength: 1, withTimeout: -1, buffer: buffer, bufferOffset: 0, tag: 2)
        }
        #expect(kept == nil && diary.lines.isEmpty)
    }

    @Test func aSocketThatHasEndedHasNoAddresses() async throws {
        let wire = try await Wire.make()
        #expect(wire.client.localPort > 0 && wire.client.connectedPort == wire.listener.localPort)
        wire.client.disconnect()
        _ = try await wire.atClient.end()
        #expect(wire.client.localHost == nil && wire.client.localPort == 0 && wire.client.localAddress == nil)
        #expect(wire.client.connectedHost == nil && wire.client.connectedPort == 0 && wire.client.connectedAddress == nil)
        #expect(!wire.client.isIPv4 && !wire.client.isIPv6 && !wire.client.isSecure)
    }

    /// Only the delegate and its queue come from the listener.
    @Test func anAcceptedSocketHasItsOwnConfiguration() async throws {
        let (listener, diary) = try Wire.listening()
        listener.alternateAddressDelay = 9
        listener.isIPv4PreferredOverIPv6 = false
        let atClient = Diary()
        let client = makeSocket(atClient)
        try client.connect(toAddress: try #require(listener.localAddress), withTimeout: -1)
        try await eventually("it is accepted") { !diary.accepted.isEmpty }
        let accepted = diary.accepted[0]
        #expect(accepted.alternateAddressDelay == 0.3 && accepted.isIPv4PreferredOverIPv6)
        client.disconnect()
    }

    // MARK: - Progress

    @Test func progressWithoutAReadOrAWriteIsNaN() async throws {
        let wire = try await Wire.make()
        var (tag, done, total): (Int, UInt, UInt) = (7, 7, 7)
        #expect(wire.client.progress(ofReadReturningTag: &tag, bytesDone: &done, total: &total).isNaN)
        #expect(tag == 0 && done == 0 && total == 0)
        (tag, done, total) = (7, 7, 7)
        #expect(wire.client.progress(ofWriteReturningTag: &tag, bytesDone: &done, total: &total).isNaN)
        #expect(tag == 0 && done == 0 && total == 0)
        #expect(wire.client.progress(ofReadReturningTag: nil, bytesDone: nil, total: nil).isNaN)
    }

    /// A read up to a delimiter has no known length.
    @Test func theProgressOfAReadWithoutALengthIsOne() async throws {
        let wire = try await Wire.make()
        wire.client.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, tag: -5)
        wire.server.write(Data("abc".utf8), withTimeout: -1, tag: 1)
        var (tag, done, total): (Int, UInt, UInt) = (0, 0, 7)
        try await eventually("three bytes have arrived") {
            wire.client.progress(ofReadReturningTag: &tag, bytesDone: &done, total: &total) == 1 && done == 3
        }
        #expect(tag == -5 && total == 0)
    }

    // MARK: - Accepting

    /// The queue that the delegate returns applies to one connection.
    @Test func aQueueForAConnectionIsNotUsedForTheNext() async throws {
        let (listener, diary) = try Wire.listening()
        let queue = DispatchQueue(label: "the first connection's")
        diary.nextSocketQueue = queue
        let clients = (0..<2).map { _ in GCDAsyncSocket(delegate: diary, delegateQueue: DispatchQueue(label: "client")) }
        for (number, client) in clients.enumerated() {
            try client.connect(toHost: "127.0.0.1", onPort: listener.localPort)
            try await eventually("it is accepted") { diary.accepted.count == number + 1 }
            diary.nextSocketQueue = nil
        }
        // Descriptors are available on the socket queue only.
        let isOnQueue = diary.accepted.map { socket in
            queue.sync {
                var descriptor: Int32 = -1
                descriptor = socket.socketFD()
                return descriptor >= 0
            }
        }
        #expect(isOnQueue == [true, false])
        for client in clients { client.disconnect() }
    }
}
