import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// Extreme values of numeric parameters. Each is a typed error or has a sensible meaning, and none traps.
@Suite(.timeLimit(.patient)) struct NumberTests {
    /// A sparse file of the maximum size. Only memory file systems support such files.
    private final class EndlessFile {
        let url = URL(fileURLWithPath: "/dev/shm/async-sockets-\(UUID().uuidString)")

        init() throws {
            let descriptor = open(url.path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0o600)
            try #require(descriptor >= 0 && ftruncate(descriptor, .max) == 0, "errno \(errno)")
            close(descriptor)
        }

        deinit { unlink(url.path) }
    }

    /// Files do not count towards the limit, but the sum of all bytes must fit into an `Int`.
    @Test(arguments: [1 << 40, Int.max])
    func moreBytesThanCanBeCountedFillTheWriteQueue(limit: Int) async throws {
        let file = try EndlessFile()
        let link = try await Link.make()
        link.client.maximumPendingWriteBytes = limit
        for tag in 0..<3 { try link.client.write(contentsOfFile: file.url.path, withTimeout: .patient, tag: tag) }
        let error = try #require(try await link.atClient.disconnected())
        #expect((error.code, error.fault) == (.writeQueueFull, .caller))
        #expect(error.message.contains("\(Int.max)"))
    }

    /// An inline delegate writes small data before and after a file of almost the greatest length.
    @Test func smallWritesAroundTheGreatestFileAreCounted() async throws {
        let file = try EndlessFile()
        let path = file.url.path
        let (peer, other) = try RawSocket.pair()
        let recorder = Recorder { socket, told in
            guard case .read = told else { return }
            for tag in 0..<2 { socket.write(Data([1]), withTimeout: -1, tag: tag) }
            try? socket.write(contentsOfFile: path, length: .max - 1_000, tag: 2)
            socket.write(Data(repeating: 1, count: 2_000), withTimeout: -1, tag: 3)
            socket.disconnect()
        }
        let socket = try AsyncSocket(adopting: other.duplicate(), inlineDelegate: recorder)
        socket.readData(toLength: 1, withTimeout: .patient, tag: 0)
        try peer.send("!")
        while true {
            guard case .disconnected(let error) = await recorder.next() else { continue }
            // The kernel may have accepted enough of the file.
            #expect(error == nil || error?.code == .writeQueueFull)
            break
        }
        withExtendedLifetime((file, socket)) {}
    }

    @Test(arguments: [Int.max, 0])
    func theGreatestFileWaitsAndIsCounted(limit: Int) async throws {
        let file = try EndlessFile()
        let link = try await Link.make()
        link.client.maximumPendingWriteBytes = limit
        link.client.writeHighWaterMark = .max
        try link.client.write(contentsOfFile: file.url.path, withTimeout: .infinity, tag: 0)
        link.server.readData(toLength: 1 << 20, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readData().count == 1 << 20)
        // The kernel buffers of both sides hold some megabytes, and the rest is queued.
        #expect(link.client.pendingWriteByteCount > 1 << 62)
        link.client.disconnect()
        #expect(try await link.atClient.disconnected() == nil)
    }

    @Test func aPartOfAFileThatNoNumberReachesIsRefused() async throws {
        let link = try await Link.make()
        let folder = try TemporaryFolder()
        let url = folder.url("file")
        try Data("abc").write(to: url)
        for (offset, length) in [(Int.min, nil), (.min, 1), (.min, .min), (.max, nil), (.max, .max), (-1, .max), (3, .max)]
            as [(Int, Int?)]
        {
            let error = #expect(throws: AsyncSocketError.self) {
                try link.client.write(contentsOfFile: url.path, offset: offset, length: length, withTimeout: .patient, tag: 0)
            }
            #expect(error?.code == .badParameter)
        }
        #expect(link.client.isConnected)
    }

    @Test func aPartWithoutALengthGoesToTheEndOfTheFile() async throws {
        let link = try await Link.make()
        let folder = try TemporaryFolder()
        try Data("abcdef").write(to: folder.url("file"))
        for offset in [6, 4, 0] {
            try link.client.write(contentsOfFile: folder.path("file"), offset: offset, withTimeout: .patient, tag: offset)
        }
        link.client.disconnectAfterWriting()
        #expect(try await link.atClient.disconnected() == nil)
        link.server.readData(toLength: 8, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readText() == "efabcdef")
    }

    @Test(arguments: [Int.min, -1, 0, 1 << 40, .max])
    func aReadBufferOfAnyCapacityTakesWhatComes(capacity: Int) async throws {
        let link = try await Link.make()
        let buffer = ReadBuffer(capacity: capacity)
        #expect(buffer.count == 0 && buffer.data.isEmpty)
        link.client.readData(toLength: 5, withTimeout: .patient, buffer: buffer, tag: 0)
        link.server.write(Data("hello"), withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.readText() == "hello")
        #expect(buffer.data == Data("hello"))
    }

    @Test(arguments: [Int.min, -1, 1, 1 << 40, .max])
    func anOffsetThatNoBufferHasEndsTheConnection(offset: Int) async throws {
        let link = try await Link.make()
        link.client.readData(toLength: 1, withTimeout: .patient, buffer: ReadBuffer(), bufferOffset: offset, tag: 0)
        #expect(try await link.atClient.disconnected()?.code == .badParameter)
    }

    @Test func readsOfTheGreatestLengthTakeWhatComes() async throws {
        let link = try await Link.make(atClient: Recorder(recordsProgress: true))
        link.client.readData(withTimeout: .patient, buffer: ReadBuffer(), maxLength: .max, tag: 0)
        link.server.write(Data("a"), withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.readText() == "a")
        link.client.readData(to: .lineEnd, withTimeout: .patient, maxLength: .max, tag: 1)
        link.server.write(Data("b\r\n"), withTimeout: .patient, tag: 0)
        var told = await link.atClient.next()
        while case .readPartial = told { told = await link.atClient.next() }
        guard case .read(Data("b\r\n"), tag: 1) = told else { throw Unexpected(description: "\(told)") }
        link.client.readData(toLength: .max, withTimeout: .patient, buffer: ReadBuffer(), tag: 2)
        link.server.write(Data("c"), withTimeout: .patient, tag: 0)
        try await link.atClient.readProgress(to: 1, tag: 2)
        #expect(link.client.isConnected)
    }

    // MARK: - Delays

    @Test(arguments: [.infinity, 1e300, .greatestFiniteMagnitude, .nan, -.infinity, -1, 1e18, 9.3e9])
    func aTimeoutWithoutEndIsNone(seconds: Double) async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        client.attemptDelay = seconds
        if seconds.isNaN {
            let error = #expect(throws: AsyncSocketError.self) {
                try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: seconds)
            }
            #expect(error?.code == .badParameter)
            try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: -1)
        } else {
            try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: seconds)
        }
        try await recorder.connected()
        var settings = try TestCertificates.client()
        (settings.handshakeTimeout, settings.trustTimeout) = (.seconds(60), .seconds(60))
        client.readData(toLength: 1, withTimeout: seconds, tag: 0)
        client.write(Data("a"), withTimeout: seconds, tag: 0)
        let server = try await atListener.accepted()
        server.readData(toLength: 1, withTimeout: seconds, tag: 0)
        #expect(try await atListener.readText() == "a")
        server.write(Data("b"), withTimeout: seconds, tag: 0)
        #expect(try await recorder.readText() == "b")
    }

    /// Extensions that a delegate can return when a read times out.
    @Test(arguments: [.infinity, 1e300, .greatestFiniteMagnitude, 9.3e9])
    func anExtensionWithoutEndLetsTheReadGoOn(seconds: Double) async throws {
        let link = try await Link.make(atClient: Recorder(readExtension: seconds))
        link.client.readData(toLength: 1, withTimeout: 0, tag: 0)
        // The socket asks the delegate immediately, and the connection stays open.
        link.client.readData(toLength: 1, withTimeout: .patient, tag: 1)
        link.server.write(Data("ab"), withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.readText() == "a")
        #expect(try await link.atClient.readText() == "b")
    }

    @Test(arguments: [.nan, -.infinity, 0, -.zero, -1e300])
    func anExtensionThatIsNoneEndsTheConnection(seconds: Double) async throws {
        let link = try await Link.make(atClient: Recorder(readExtension: seconds))
        link.client.readData(toLength: 1, withTimeout: 0, tag: 0)
        #expect(try await link.atClient.disconnected()?.code == .readTimeout)
    }

    // MARK: - Limits

    @Test(arguments: [Int.min, -1, 0])
    func aLimitBelowOneTakesOneWriteAtATime(limit: Int) async throws {
        let link = try await Link.make()
        link.client.maximumPendingWriteBytes = limit
        link.client.writeHighWaterMark = limit
        link.client.write(Data(count: 64 << 20), withTimeout: .patient, tag: 0)
        link.client.write(Data("a"), withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.disconnected()?.code == .writeQueueFull)
    }

    @Test func anOptionThatNoKernelNumberHoldsIsTheCallersError() throws {
        let socket = AsyncSocket()
        for option in [SocketOptionKey<Duration>.userTimeout, .keepAliveIdle, .keepAliveInterval] {
            for time in [Duration.seconds(Int64.max), .seconds(Int64.min), .seconds(1 << 31), .seconds(-(1 << 31) - 1)] {
                let error = #expect(throws: AsyncSocketError.self) { try socket.setOption(option, to: time) }
                #expect(error?.code == .badParameter)
            }
        }
        for option in [SocketOptionKey<Int>.keepAliveCount, .receiveBufferSize, .ipTTL, .fastOpenQueueLength] {
            for number in [Int.min, .max, 1 << 31, -(1 << 31) - 1] {
                let error = #expect(throws: AsyncSocketError.self) { try socket.setOption(option, to: number) }
                #expect(error?.code == .badParameter)
            }
        }
        for time in [Duration.seconds(Int64.max), .seconds(-1), .seconds(1), .nanoseconds(1)] {
            let error = #expect(throws: AsyncSocketError.self) { try socket.setOption(.linger, to: time) }
            #expect(error?.code == .badParameter)
        }
    }
}
