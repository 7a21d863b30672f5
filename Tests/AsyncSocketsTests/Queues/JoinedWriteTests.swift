import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Small writes of a delegate in one callback, which are joined until the callback returns.
@Suite(.timeLimit(.patient)) struct JoinedWriteTests {
    enum Delivery: CaseIterable, Sendable {
        case inline, queue
    }

    /// A socket whose delegate calls `body` when the peer's first byte arrives.
    private struct Subject {
        let peer: RawSocket
        let socket: AsyncSocket
        let recorder: Recorder

        init(
            _ delivery: Delivery = .inline, prepare: (AsyncSocket) throws -> Void = { _ in }, sends: Bool = true,
            _ body: @escaping @Sendable (AsyncSocket) -> Void
        ) throws {
            let (peer, other) = try RawSocket.pair()
            self.peer = peer
            recorder = Recorder { socket, told in if case .read = told { body(socket) } }
            switch delivery {
            case .inline: socket = try AsyncSocket(adopting: other.duplicate(), inlineDelegate: recorder)
            case .queue:
                socket = try AsyncSocket(
                    adopting: other.duplicate(), delegate: recorder, delegateQueue: DispatchQueue(label: "delegate"))
            }
            try prepare(socket)
            guard sends else { return }
            socket.readData(toLength: 1, withTimeout: .patient, tag: -1)
            try peer.send("!")
        }

        /// The tags of the completed writes, and the error of the close.
        func tags(_ count: Int = .max) async -> (tags: [Int], error: AsyncSocketError?) {
            await Self.tags(of: recorder, count)
        }

        static func tags(of recorder: Recorder, _ count: Int = .max) async -> (tags: [Int], error: AsyncSocketError?) {
            var tags: [Int] = []
            while tags.count < count {
                switch await recorder.next() {
                case .wrote(let tag): tags.append(tag)
                case .disconnected(let error): return (tags, error)
                default: break
                }
            }
            return (tags, nil)
        }
    }

    /// Writes of sizes on both sides of the limit for small ones, with and without a timeout. An empty write
    /// has no effect.
    private static let sizes = [3, 200, 4_095, 0, 1, 4_096, 17, 9_000, 1, 1, 60_000, 5, 3_000, 2, 70_000, 8]

    private static func write(_ sizes: [Int], to socket: AsyncSocket) {
        for (tag, size) in sizes.enumerated() {
            socket.write(bytes(size, tag), withTimeout: tag % 3 == 0 ? .patient : -1, tag: tag)
        }
    }

    private static func bytes(_ count: Int, _ tag: Int) -> Data { Data(repeating: UInt8(truncatingIfNeeded: tag), count: count) }

    private static func all(_ sizes: [Int]) -> [UInt8] { sizes.enumerated().flatMap { bytes($1, $0) } }

    private static func tags(_ sizes: [Int]) -> [Int] { sizes.indices.filter { sizes[$0] > 0 } }

    private static func received(by peer: RawSocket, atLeast count: Int) throws -> [UInt8] {
        var received: [UInt8] = []
        while received.count < count, case let piece = try peer.receive(), !piece.isEmpty { received += piece }
        return received
    }

    @Test(arguments: Delivery.allCases) func theBytesAndCompletionsKeepTheirOrder(_ delivery: Delivery) async throws {
        let subject = try Subject(delivery) { Self.write(Self.sizes, to: $0) }
        let expected = Self.all(Self.sizes)
        let isEqual = try Self.received(by: subject.peer, atLeast: expected.count) == expected
        #expect(isEqual)
        let wanted = Self.tags(Self.sizes)
        #expect(await subject.tags(wanted.count).tags == wanted)
    }

    /// Small, empty and large writes in several orders, as the last writes of a callback.
    @Test(arguments: [[1], [1, 0], [0, 1], [1, 0, 0], [1, 1, 0], [1, 0, 1], [5_000, 0, 1], [1, 5_000, 0]])
    func emptyWritesHoldNothingBack(sizes: [Int]) async throws {
        let subject = try Subject { Self.write(sizes, to: $0) }
        #expect(try Self.received(by: subject.peer, atLeast: sizes.reduce(0, +)) == Self.all(sizes))
        #expect(await subject.tags(Self.tags(sizes).count).tags == Self.tags(sizes))
        subject.socket.disconnectAfterWriting()
        #expect(await subject.tags().error == nil)
    }

    /// More writes than one buffer may hold.
    @Test func writesOfOneByteKeepTheirOrder() async throws {
        let sizes = [Int](repeating: 1, count: 5_000)
        let subject = try Subject { Self.write(sizes, to: $0) }
        let isEqual = try Self.received(by: subject.peer, atLeast: sizes.count) == Self.all(sizes)
        #expect(isEqual)
        #expect(await subject.tags(sizes.count).tags == Array(sizes.indices))
    }

    @Test func aFileBetweenWritesKeepsItsPlace() async throws {
        let folder = try TemporaryFolder()
        let url = folder.url("file")
        try Data("the file".utf8).write(to: url)
        let failures = Locked<[any Error]>([])
        let subject = try Subject { socket in
            Self.write([4, 5], to: socket)
            do { try socket.write(contentsOfFile: url.path, tag: 2) } catch { failures.withLock { $0.append(error) } }
            Self.write([4, 5], to: socket)
        }
        let expected = Self.all([4, 5]) + Array("the file".utf8) + Self.all([4, 5])
        #expect(try Self.received(by: subject.peer, atLeast: expected.count) == expected)
        #expect(await subject.tags(5).tags == [0, 1, 2, 0, 1])
        #expect(failures.withLock { $0.isEmpty })
    }

    /// Over TLS, with a kernel that accepts little at a time.
    @Test func writesOverTLSKeepTheirOrder() async throws {
        let sizes = [Int](repeating: 200, count: 3_000)
        let subject = try Subject(prepare: { try $0.setOption(.sendBufferSize, to: 1) }, sends: false) {
            Self.write(sizes, to: $0)
        }
        let client = try AsyncSocket(adopting: subject.peer.duplicate())
        async let secured = client.startTLS(settings: TestCertificates.client())
        try subject.socket.beginTLS(settings: TestCertificates.server())
        _ = try await secured
        subject.socket.readData(toLength: 1, withTimeout: .patient, tag: -1)
        try await client.write(Data([1]))
        let received = try await client.read(exactly: 600_000)
        let isEqual = Array(received) == Self.all(sizes)
        #expect(isEqual)
        #expect(await subject.tags(sizes.count).tags == Array(sizes.indices))
    }

    /// The peer resets the connection while the kernel is full.
    @Test func writesBeforeAResetFail() async throws {
        let sizes = [Int](repeating: 100, count: 3_000)
        var subject: Subject? = try Subject(prepare: { try $0.setOption(.sendBufferSize, to: 1) }) { Self.write(sizes, to: $0) }
        let (socket, recorder) = try #require(subject.map { ($0.socket, $0.recorder) })
        let first = await Subject.tags(of: recorder, 1).tags
        // Closes the peer's socket, which has unread bytes.
        subject = nil
        let (tags, error) = await Subject.tags(of: recorder)
        #expect(error != nil)
        #expect(first + tags == Array(0...tags.count) && tags.count < sizes.count - 1)
        withExtendedLifetime(socket) {}
    }

    /// The peer does not read before the first write has completed. Some writes fit into the kernel's
    /// buffers, and the others wait in the queue.
    @Test(arguments: Delivery.allCases) func aFullKernelTakesTheRestLater(_ delivery: Delivery) async throws {
        let sizes = [Int](repeating: 100, count: 3_000)
        let subject = try Subject(delivery, prepare: { try $0.setOption(.sendBufferSize, to: 1) }) { Self.write(sizes, to: $0) }
        #expect(await subject.tags(1).tags == [0])
        let expected = Self.all(sizes)
        let isEqual = try Self.received(by: subject.peer, atLeast: expected.count) == expected
        #expect(isEqual)
        #expect(await subject.tags(sizes.count - 1).tags == Array(1..<sizes.count))
    }

    /// Writes before `beginTLS` are sent in plaintext, and later writes are encrypted.
    @Test(arguments: [[5], [5, 6, 7]]) func writesAroundStartTLSStayOnTheirSide(before: [Int]) async throws {
        let settings = try TestCertificates.server()
        let failures = Locked<[any Error]>([])
        let subject = try Subject { socket in
            Self.write(before, to: socket)
            do { try socket.beginTLS(settings: settings) } catch { failures.withLock { $0.append(error) } }
            for tag in 3..<6 { socket.write(Self.bytes(tag, tag), withTimeout: -1, tag: tag) }
        }
        let client = try AsyncSocket(adopting: subject.peer.duplicate())
        #expect(try await client.read(exactly: before.reduce(0, +)) == Data(Self.all(before)))
        try await client.startTLS(settings: TestCertificates.client())
        #expect(try await client.read(exactly: 12) == Data((3..<6).flatMap { Self.bytes($0, $0) }))
        #expect(await subject.tags(before.count + 3).tags == Array(before.indices) + [3, 4, 5])
        #expect(failures.withLock { $0.isEmpty })
    }

    /// The properties describe unsent writes as if each were queued.
    @Test func theOldestWriteIsTheFirstOfTheJoined() async throws {
        let progress = Locked<[OperationProgress?]>([])
        let waiting = Locked<[Int]>([])
        let subject = try Subject { socket in
            for tag in 1...3 {
                socket.write(Self.bytes(10 * tag, tag), withTimeout: -1, tag: tag)
                progress.withLock { $0.append(socket.writeProgress) }
                waiting.withLock { $0.append(socket.pendingWriteByteCount) }
            }
            socket.flush()
        }
        #expect(await subject.tags(3).tags == [1, 2, 3])
        #expect(progress.withLock { $0.map { $0?.tag } } == [1, 1, 1])
        #expect(progress.withLock { $0.map { $0?.total } } == [10, 10, 10])
        #expect(waiting.withLock { $0 } == [10, 30, 60])
    }

    @Test(arguments: [false, true]) func closingAfterWritesSendsThem(onlyWriting: Bool) async throws {
        let subject = try Subject { socket in
            Self.write([4, 5, 6], to: socket)
            if onlyWriting { socket.closeWriteStream() } else { socket.disconnectAfterWriting() }
            socket.write(Data([9]), withTimeout: -1, tag: 9)
        }
        #expect(try Self.received(by: subject.peer, atLeast: .max) == Self.all([4, 5, 6]))
        #expect(await subject.tags(3).tags == [0, 1, 2])
        if onlyWriting { subject.socket.disconnect() }
        let (tags, error) = await subject.tags()
        #expect(tags.isEmpty && error == nil)
    }

    /// The first write that the kernel does not accept times out.
    @Test(arguments: Delivery.allCases) func aTimeoutOfAJoinedWriteApplies(_ delivery: Delivery) async throws {
        let sizes = [Int](repeating: 100, count: 3_000)
        let subject = try Subject(delivery, prepare: { try $0.setOption(.sendBufferSize, to: 1) }) { socket in
            for (tag, size) in sizes.enumerated() { socket.write(Self.bytes(size, tag), withTimeout: 0.05, tag: tag) }
        }
        let (tags, error) = await subject.tags()
        #expect(error?.code == .writeTimeout)
        #expect(tags == Array(0..<tags.count) && tags.count < sizes.count)
    }

    @Test func joinedWritesHaveALimit() {
        let writes = CollectedWrites(limit: 10)
        #expect([6, 5, 4, 1].map { writes.join(Self.bytes($0, 0), timeout: -1, tag: 0) } == [6, 0, 4, 0])
        #expect(writes.bytes.count == 10)
    }

    /// The delegate's bytes exceed the limit of the queue while the kernel is full.
    @Test func theLimitOfTheQueueApplies() async throws {
        let sizes = [Int](repeating: 100, count: 30_000)
        let subject = try Subject(
            prepare: {
                try $0.setOption(.sendBufferSize, to: 1)
                $0.maximumPendingWriteBytes = 100_000
            }, { Self.write(sizes, to: $0) })
        let (tags, error) = await subject.tags()
        #expect(error?.code == .writeQueueFull)
        #expect(tags == Array(0..<tags.count))
    }

    /// The limit becomes lower than the number of bytes that are joined already.
    @Test func aLimitThatIsLoweredApplies() async throws {
        let subject = try Subject(
            prepare: { try $0.setOption(.sendBufferSize, to: 1) },
            { socket in
                Self.write([Int](repeating: 100, count: 600), to: socket)
                socket.maximumPendingWriteBytes = 100
                Self.write([Int](repeating: 100, count: 600), to: socket)
            })
        #expect(await subject.tags().error?.code == .writeQueueFull)
    }

    /// The bytes of a task have no completion, so they are not joined with a delegate's bytes.
    @Test func aTasksBytesFollowJoinedWrites() throws {
        let writes = WriteHalf()
        writes.append(WritePacket(data: Data([1]), timeout: -1, completion: .delegate(tag: 1)))
        #expect(writes.beginJoining(limit: 100) && writes.join(Data([2]), timeout: -1, tag: 2))
        Data([3]).withUnsafeBytes { writes.collect($0, nil, timeout: -1) }
        writes.packCollected()
        #expect((0..<3).map { writes.packets.packet(at: $0)?.pointee.bytes } == [Data([1]), Data([2]), Data([3])])
        #expect(writes.waitingByteCount == 3)
    }

    @Test func borrowedBytesBetweenWritesKeepTheirOrder() async throws {
        let subject = try Subject { socket in
            Self.write([4, 5], to: socket)
            Data([7, 7]).withUnsafeBytes { socket.write($0.bytes, withTimeout: -1, tag: 7) }
            Self.write([4, 5], to: socket)
        }
        let expected = Self.all([4, 5]) + [7, 7] + Self.all([4, 5])
        #expect(try Self.received(by: subject.peer, atLeast: expected.count) == expected)
        #expect(await subject.tags(5).tags == [0, 1, 7, 0, 1])
    }

    /// A task on the loop uses both kinds of calls.
    @Test func writesOfATaskAndADelegateKeepTheirOrder() async throws {
        let subject = try Subject { _ in }
        let socket = subject.socket
        let writing = Task(executorPreference: socket.executor) {
            for round in 0..<20 {
                Self.write([4, 5, 6], to: socket)
                try await socket.write(Data([7, 7]))
                try await socket.write(Data([8, UInt8(round)]))
            }
        }
        let expected: [UInt8] = (0..<20).flatMap { Self.all([4, 5, 6]) + ([7, 7, 8, UInt8($0)] as [UInt8]) }
        #expect(try Self.received(by: subject.peer, atLeast: expected.count) == expected)
        try await writing.value
        #expect(await subject.tags(60).tags == (0..<60).map { $0 % 3 })
    }
}
