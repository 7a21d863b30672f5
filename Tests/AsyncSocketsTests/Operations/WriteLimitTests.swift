import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Limits on queued writes, and the corresponding delegate callbacks.
@Suite(.timeLimit(.patient)) struct WriteLimitTests {
    @Test(arguments: [false, true])
    func d13AWriteOverTheQueueLimitClosesTheConnection(secure: Bool) async throws {
        let link = try await Link.make()
        if secure { try await link.secure(client: TestCertificates.client(), server: TestCertificates.server()) }
        link.client.maximumPendingWriteBytes = 1 << 20
        // The peer does not read. The kernel accepts some data, and the rest is queued.
        for tag in 0..<64 { link.client.write(Data(count: 1 << 20), withTimeout: .patient, tag: tag) }
        let error = try #require(try await link.atClient.disconnected())
        #expect(error.code == .writeQueueFull)
        #expect(error.fault == .caller)
    }

    /// More than the kernel buffers of both sides hold.
    private static let more = 64 << 20

    @Test func aWriteAboveTheLimitIsTakenWhenNothingElseWaits() async throws {
        let link = try await Link.make()
        link.client.maximumPendingWriteBytes = 10
        link.client.write(Data(count: Self.more), withTimeout: .patient, tag: 1)
        link.server.readData(toLength: Self.more, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readData().count == Self.more)
        #expect(try await link.atClient.wrote() == 1)
    }

    @Test func aSecondWriteBehindOneAboveTheLimitIsRefused() async throws {
        let link = try await Link.make()
        link.client.maximumPendingWriteBytes = 10
        link.client.write(Data(count: Self.more), withTimeout: .patient, tag: 1)
        link.client.write(Data(count: 1), withTimeout: .patient, tag: 2)
        #expect(try await link.atClient.disconnected()?.code == .writeQueueFull)
    }

    @Test(arguments: [Int.min, -1, 0, .max])
    func anyLimitIsALimit(limit: Int) async throws {
        let link = try await Link.make()
        link.client.maximumPendingWriteBytes = limit
        link.client.write(Data(count: Self.more), withTimeout: .patient, tag: 1)
        link.client.write(Data(count: 1), withTimeout: .patient, tag: 2)
        guard limit == .max else {
            #expect(try await link.atClient.disconnected()?.code == .writeQueueFull)
            return
        }
        link.server.readData(toLength: Self.more + 1, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readData().count == Self.more + 1)
    }

    /// A server that echoes everything to a peer that never reads.
    @Test func withoutASettingAPeerThatDoesNotReadIsBounded() async throws {
        let link = try await Link.make()
        for tag in 0..<1_000 { link.client.write(Data(count: 1 << 20), tag: tag) }
        #expect(try await link.atClient.disconnected()?.code == .writeQueueFull)
    }

    /// Millions of tiny writes take much more memory than their bytes.
    @Test func manyTinyWritesAreBoundedToo() async throws {
        let link = try await Link.make()
        link.client.maximumPendingWriteBytes = Self.more + (4 << 20)
        link.client.write(Data(count: Self.more), tag: -1)
        // The kernels accept part of the first write. The other writes have a third of a mebibyte of data,
        // and take 24 times that.
        for tag in 0..<300_000 { link.client.write(Data(count: 1), tag: tag) }
        #expect(try await link.atClient.disconnected()?.code == .writeQueueFull)
        let few = try await Link.make()
        few.client.maximumPendingWriteBytes = 1 << 20
        for tag in 0..<1000 { few.client.write(Data(count: 1), tag: tag) }
        few.server.readData(toLength: 1000, withTimeout: .patient, tag: 0)
        #expect(try await few.atServer.readData().count == 1000)
    }

    @Test func filesDoNotCountForTheLimit() async throws {
        let link = try await Link.make()
        link.client.maximumPendingWriteBytes = 10
        try await withFile(Data(count: 32 << 20)) { file in
            for tag in 0..<3 { try link.client.write(contentsOfFile: file.path, tag: tag) }
            link.client.write(Data("end"), tag: 3)
        }
        let count = 3 * (32 << 20) + 3
        link.server.readData(toLength: count, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readData().count == count)
    }

    @Test func writesWithinTheLimitGoOnWithoutEnd() async throws {
        let link = try await Link.make()
        link.client.maximumPendingWriteBytes = 1000
        for tag in 0..<1000 {
            link.server.readData(toLength: 1000, withTimeout: .patient, tag: tag)
            link.client.write(Data(count: 1000), withTimeout: .patient, tag: tag)
            #expect(try await link.atClient.wrote() == tag)
        }
        #expect(link.client.isConnected)
    }

    /// They wait for the end of the callback, but count only if the kernel does not accept them.
    @Test(.unmodifiedKernel)
    func whatACallbackWritesLeavesBeforeItIsTooMuch() async throws {
        let listener = try RawSocket.listening()
        let recorder = Recorder { socket, told in
            guard case .connected = told else { return }
            for tag in 0..<10 { socket.write(Data(count: 1000), withTimeout: .patient, tag: tag) }
        }
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.maximumPendingWriteBytes = 1500
        try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        try await recorder.connected()
        for tag in 0..<10 { #expect(try await recorder.wrote() == tag) }
        #expect(socket.isConnected)
    }

    @Test func d13HighWaterIsReportedOnceUntilTheQueueDropsToHalfTheMark() async throws {
        let link = try await Link.make()
        link.client.writeHighWaterMark = 1 << 20
        link.client.maximumPendingWriteBytes = .max
        // The first is more than the kernel buffers of both sides hold. While nothing is read, more than a
        // MiB of it is queued.
        let writes = [64 << 20] + Array(repeating: 1 << 18, count: 8)
        for count in writes { link.client.write(Data(count: count), withTimeout: .patient, tag: 0) }
        let written = writes.reduce(0, +)
        link.server.readData(toLength: written, withTimeout: .patient, tag: 1)
        #expect(try await link.atServer.readData().count == written)
        var marks: [Int] = []
        for _ in writes {
            var told = await link.atClient.next()
            if case .highWater(let count) = told {
                marks.append(count)
                told = await link.atClient.next()
            }
            guard case .wrote = told else { throw Unexpected(description: "\(told)") }
        }
        #expect(marks.count == 1)
        #expect(marks.allSatisfy { $0 >= 1 << 20 })
    }

    // MARK: - Files

    private func withFile(_ contents: Data, _ body: (URL) async throws -> Void) async throws {
        let file = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        try contents.write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        try await body(file)
    }

    private static let contents = pattern(3_000_001)

    @Test(arguments: [nil, TLSProtocolVersion.tls12, .tls13])
    func aFileArrivesIntactBetweenOtherWrites(_ version: TLSProtocolVersion?) async throws {
        let link = try await Link.make()
        if let version {
            try await link.secure(client: TestCertificates.client().only(version), server: TestCertificates.server())
        }
        try await withFile(Self.contents) { file in
            link.client.write(Data("before "), withTimeout: .patient, tag: 1)
            try link.client.write(contentsOfFile: file.path, withTimeout: .patient, tag: 2)
            link.client.write(Data(" between "), withTimeout: .patient, tag: 3)
            try link.client.write(contentsOfFile: file.path, offset: 1000, length: 70_000, withTimeout: .patient, tag: 4)
            link.client.write(Data(" after"), withTimeout: .patient, tag: 5)
        }
        // The file is deleted by now, but was opened when the write was queued.
        let expected = Data("before ") + Self.contents + Data(" between ") + Self.contents[1000..<71_000] + Data(" after")
        link.server.readData(toLength: expected.count, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readData() == expected)
        for tag in 1...5 { #expect(try await link.atClient.wrote() == tag) }
    }

    @Test func aPartOutsideOfTheFileIsRefusedAtOnce() async throws {
        let link = try await Link.make()
        try await withFile(Data("abc")) { file in
            for (offset, length) in [(4, nil), (-1, nil), (0, 4), (2, 2), (0, -1), (1, .max), (.min, nil)] as [(Int, Int?)] {
                let error = #expect(throws: AsyncSocketError.self, "\(offset), \(String(describing: length))") {
                    try link.client.write(
                        contentsOfFile: file.path, offset: offset, length: length, withTimeout: .patient, tag: 0)
                }
                #expect(error?.code == .badParameter)
            }
        }
        #expect(link.client.isConnected)
    }

    @Test(arguments: ["/nowhere/at/all", "/", "/dev/null"])
    func whatIsNoRegularFileIsRefusedAtOnce(path: String) async throws {
        let link = try await Link.make()
        let error = #expect(throws: AsyncSocketError.self) {
            try link.client.write(contentsOfFile: path, withTimeout: .patient, tag: 0)
        }
        #expect(error?.code == (path.hasPrefix("/nowhere") ? .system : .badParameter))
    }

    @Test(arguments: [false, true])
    func aFileThatShrinksEndsTheConnectionInsteadOfHangingIt(secure: Bool) async throws {
        let link = try await Link.make()
        if secure { try await link.secure(client: TestCertificates.client(), server: TestCertificates.server()) }
        try await withFile(Data(count: 64 << 20)) { file in
            // The kernel's buffer is full long before the end of the file.
            try link.client.write(contentsOfFile: file.path, withTimeout: .patient, tag: 0)
            try FileHandle(forWritingTo: file).truncate(atOffset: 1000)
            link.server.readData(toLength: 64 << 20, withTimeout: .patient, tag: 0)
            let error = try #require(try await link.atClient.disconnected())
            #expect(error.errno == ENODATA)
            #expect(error.code == .system)
        }
    }

    /// The peer has closed its side, and its data is unread. The file's error is reported anyway.
    @Test(arguments: [false, true])
    func aShrunkFileIsToldThoughThePeerHasClosedItsSide(secure: Bool) async throws {
        let settings = try TestCertificates.server()
        let start: [ScriptedPeer.Step] = secure ? [.startTLS(settings)] : []
        let mayRead = try TestSignal()
        let peer = try ScriptedPeer.listening(
            start + [.send("unread"), .sendCloseNotify, .finish, .wait(for: mayRead), .expectReset])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.autoDisconnectOnClosedReadStream = false
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        if secure { try socket.beginTLS(settings: TestCertificates.client()) }
        try await recorder.connected()
        if secure { try await recorder.secured() }
        try await withFile(Data(count: 64 << 20)) { file in
            try socket.write(contentsOfFile: file.path, tag: 0)
            try FileHandle(forWritingTo: file).truncate(atOffset: 1000)
            mayRead.fire()
            let error = try #require(try await recorder.disconnected())
            #expect(error.errno == ENODATA && error.code == .system, "\(error)")
        }
        _ = try await peer.finish()
    }

    @Test func aResetWhileAFileIsSentEndsTheConnectionAndNotTheProcess() async throws {
        let reading = try TestSignal()
        let peer = try ScriptedPeer.listening([.expect("\0\0\0"), .fire(reading), .reset])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await withFile(Data(count: 64 << 20)) { file in
            try socket.write(contentsOfFile: file.path, withTimeout: .patient, tag: 0)
            let error = try #require(try await recorder.disconnected())
            #expect(error.code == .connectionReset, "\(error)")
        }
    }
}
