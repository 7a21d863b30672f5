import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import SocketBuffers

/// Reads that pass borrowed bytes to a delegate, and writes of borrowed bytes.
@Suite(.timeLimit(.patient)) struct BorrowedBytesTests {
    /// A delegate that passes the borrowed bytes to a closure.
    private final class Borrower: AsyncSocketDelegate, Sendable {
        private let body: @Sendable (AsyncSocket, RawSpan) -> Void
        let recorder = Recorder()

        init(_ body: @escaping @Sendable (AsyncSocket, RawSpan) -> Void) { self.body = body }

        func socket(_ socket: AsyncSocket, didReadBytes bytes: RawSpan, withTag tag: Int) {
            body(socket, bytes)
            recorder.socket(socket, didReadBytes: bytes, withTag: tag)
        }

        func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
            recorder.socket(socket, didWriteDataWithTag: tag)
        }

        func socketDidSecure(_ socket: AsyncSocket) { recorder.socketDidSecure(socket) }

        func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
            recorder.socketDidDisconnect(socket, withError: error)
        }
    }

    private static func write(_ text: String, to socket: AsyncSocket, tag: Int = 0) {
        var text = text
        text.withUTF8 { socket.write(UnsafeRawBufferPointer($0).bytes, withTimeout: .patient, tag: tag) }
    }

    /// Returns a connection whose server passes borrowed bytes to `borrower`.
    private func serve(_ borrower: Borrower, _ delivery: Link.Delivery, isSecure: Bool = false) async throws -> Link {
        let link = try await Link.make(delivery)
        if isSecure { try await link.secure(client: TestCertificates.client(), server: TestCertificates.server()) }
        link.server.changeDelegate(to: borrower)
        link.server.readBytes(withTimeout: .patient)
        return link
    }

    /// The peer sends more than the kernel can buffer before it reads. Writes are partial, and the rest is
    /// copied.
    @Test(arguments: Link.Delivery.allCases, [false, true])
    func whatIsBorrowedComesBack(delivery: Link.Delivery, isSecure: Bool) async throws {
        let echo = Borrower { socket, bytes in
            socket.write(bytes, withTimeout: .patient, tag: 0)
            socket.readBytes(withTimeout: .patient)
        }
        let link = try await serve(echo, delivery, isSecure: isSecure)
        let sent = pattern(12_000_000)
        var rest = sent[...]
        for size in [1, 64, 5_000, 70_000, 3_000_000, .max] {
            let piece = rest.prefix(size)
            link.client.write(Data(piece), withTimeout: .patient, tag: 1)
            #expect(try await link.atClient.wrote() == 1)
            rest = rest.dropFirst(piece.count)
        }
        link.client.readData(toLength: sent.count, withTimeout: .patient, tag: 2)
        #expect(try await link.atClient.readData() == sent)
    }

    @Test(.unmodifiedKernel, arguments: Link.Delivery.allCases)
    func readsOfBothKindsShareTheBytesInOrder(delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        link.server.readData(toLength: 3, withTimeout: .patient, tag: 1)
        link.server.readBytes(withTimeout: .patient, tag: 2)
        link.server.readData(toLength: 2, withTimeout: .patient, tag: 3)
        link.server.readBytes(withTimeout: .patient, tag: 4)
        link.client.write(Data("abcdefg"), withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readData() == Data("abc"))
        #expect(try await link.atServer.readData() == Data("defg"))
        link.client.write(Data("hij"), withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readData() == Data("hi"))
        #expect(try await link.atServer.readData() == Data("j"))
    }

    /// Without a timeout the read has no timer that would run the connection.
    @Test(.unmodifiedKernel, arguments: Link.Delivery.allCases)
    func aReadWithoutALimitGetsWhatLiesUnread(delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        link.server.readData(toLength: 3, tag: 1)
        link.client.write(Data("abcdefg"), withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readData() == Data("abc"))
        link.server.readData(toLength: 1, tag: 2)
        #expect(try await link.atServer.readData() == Data("d"))
        link.server.readBytes(tag: 3)
        #expect(try await link.atServer.readData() == Data("efg"))
    }

    /// Closing the connection in the callback releases its buffers, and the blocks are reused.
    @Test(.unmodifiedKernel, arguments: Link.Delivery.allCases)
    func borrowedBytesStayWhileTheCallbackRuns(delivery: Link.Delivery) async throws {
        let borrower = Borrower { socket, bytes in
            socket.flush()
            socket.readBytes(withTimeout: .patient)
            socket.disconnect()
            // More blocks than are in the pool.
            for block in (0..<64).map({ _ in BufferPool.shared.take() }) {
                memset(block, 0xFF, BufferPool.blockSize)
                BufferPool.shared.give(block)
            }
        }
        let link = try await serve(borrower, delivery)
        link.client.write(Data("still here"), withTimeout: .patient, tag: 0)
        // Recorded after the closure.
        #expect(try await borrower.recorder.readData() == Data("still here"))
        #expect(try await borrower.recorder.disconnected() == nil)
    }

    /// The peer receives the reply while the callback is still running. On a socket queue, an event of the
    /// loop may be pending, and the write would wait for it.
    @Test(.unmodifiedKernel) func theFirstWriteOfACallbackLeavesAtOnce() async throws {
        let (near, far) = try RawSocket.pair()
        let borrower = Borrower { socket, bytes in
            Self.write("answer", to: socket, tag: 5)
            let answer = try? far.receive(atLeast: 6)
            Self.write(answer == "answer" ? "more" : "late", to: socket, tag: 6)
        }
        let socket = try AsyncSocket(adopting: near.duplicate(), inlineDelegate: borrower)
        socket.readBytes(withTimeout: .patient)
        try far.send("question")
        // Recorded after the closure, which has read the reply.
        #expect(try await borrower.recorder.readData() == Data("question"))
        #expect(try far.receive(atLeast: 4) == "more")
        #expect(try await borrower.recorder.wrote() == 5)
        #expect(try await borrower.recorder.wrote() == 6)
    }

    /// The first of them is sent immediately, and the others together.
    @Test(.unmodifiedKernel, arguments: [false, true])
    func theOtherWritesOfACallbackLeaveTogether(isSecure: Bool) async throws {
        let borrower = Borrower { socket, bytes in
            for number in 0..<16 { Self.write("answer \(number % 10)", to: socket) }
            socket.readBytes(withTimeout: .patient)
        }
        let link = try await serve(borrower, .inline, isSecure: isSecure)
        // On a busy machine the kernel may retransmit a segment, so use the minimum over several rounds.
        var fewest = Int.max
        for _ in 0..<20 where fewest > 2 {
            link.client.readData(toLength: 16 * 8, withTimeout: .patient, tag: 0)
            let before = try await link.client.receivedSegmentCount
            link.client.write(Data("question"), withTimeout: .patient, tag: 1)
            #expect(try await link.atClient.readData() == Data((0..<16).map { "answer \($0 % 10)" }.joined()))
            fewest = try await min(fewest, link.client.receivedSegmentCount - before)
        }
        #expect((1...2).contains(fewest))
    }

    /// A write after `beginTLS` in the same callback is encrypted, even if it is the callback's first write.
    @Test(.unmodifiedKernel, arguments: Link.Delivery.allCases, [false, true])
    func aWriteBehindBeginTLSIsEncrypted(delivery: Link.Delivery, comesFirst: Bool) async throws {
        let settings = try TestCertificates.server()
        let borrower = Borrower { socket, bytes in
            if !comesFirst { Self.write("go ahead", to: socket) }
            #expect(throws: Never.self) { try socket.beginTLS(settings: settings) }
            Self.write("secret", to: socket)
        }
        let link = try await serve(borrower, delivery)
        link.client.write(Data("STARTTLS"), withTimeout: .patient, tag: 1)
        #expect(try await link.atClient.wrote() == 1)
        // The ClientHello must not be part of the bytes passed to the read.
        #expect(try await borrower.recorder.readData() == Data("STARTTLS"))
        if !comesFirst {
            link.client.readData(toLength: 8, withTimeout: .patient, tag: 2)
            #expect(try await link.atClient.readData() == Data("go ahead"))
        }
        try link.client.beginTLS(settings: TestCertificates.client())
        link.client.readData(toLength: 6, withTimeout: .patient, tag: 3)
        try await link.atClient.secured()
        #expect(try await link.atClient.readData() == Data("secret"))
    }

    /// The peer does not read: what the kernel does not take waits, counts, and has its time.
    @Test(.unmodifiedKernel, arguments: Link.Delivery.allCases)
    func aBorrowedWriteThatWaitsHasItsLimits(delivery: Link.Delivery) async throws {
        let waiting = Locked(0)
        let borrower = Borrower { socket, bytes in
            let bytes = [UInt8](repeating: 1, count: 32 << 20)
            socket.write(bytes.span.bytes, withTimeout: 0.5, tag: 3)
            waiting.withLock { $0 = socket.pendingWriteByteCount }
        }
        let link = try await serve(borrower, delivery)
        link.client.write(Data("more than you take"), withTimeout: .patient, tag: 1)
        _ = try await borrower.recorder.readData()
        if delivery == .inline { #expect(waiting.withLock { (1..<32 << 20).contains($0) }) }
        #expect(try await borrower.recorder.disconnected()?.code == .writeTimeout)
    }

    /// The reply to the first of two messages is written while the second is unread. Both replies are sent
    /// together.
    @Test(.unmodifiedKernel) func aBorrowedWriteWaitsWhileBytesLieUnread() async throws {
        let answering = Recorder { socket, told in
            guard case .read(let line, _) = told else { return }
            line.withUnsafeBytes { socket.write($0.bytes, withTimeout: .patient, tag: 0) }
            socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        }
        let link = try await Link.make(.inline, atServer: answering)
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        var fewest = Int.max
        for _ in 0..<20 where fewest > 1 {
            let before = try await link.client.receivedSegmentCount
            link.client.readData(toLength: 10, withTimeout: .patient, tag: 2)
            link.client.write(Data("one\r\ntwo\r\n"), withTimeout: .patient, tag: 1)
            #expect(try await link.atClient.readData() == Data("one\r\ntwo\r\n"))
            fewest = try await min(fewest, link.client.receivedSegmentCount - before)
        }
        #expect(fewest == 1)
    }

    @Test(arguments: Link.Delivery.allCases)
    func aReadThatLendsTimesOut(delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        link.server.readBytes(withTimeout: 0.05, tag: 7)
        #expect(try await link.atServer.disconnected()?.code == .readTimeout)
    }

    /// No data is available when the read is queued. It completes with the next bytes or the end of the
    /// stream.
    @Test(.unmodifiedKernel, arguments: Link.Delivery.allCases)
    func aReadInACallbackGetsWhatComesLater(delivery: Link.Delivery) async throws {
        let borrower = Borrower { socket, bytes in socket.readBytes(withTimeout: .patient) }
        let link = try await serve(borrower, delivery)
        for text in ["one", "two", "three"] {
            link.client.write(Data(text), withTimeout: .patient, tag: 0)
            #expect(try await borrower.recorder.readData() == Data(text))
        }
        link.client.disconnect()
        #expect(try await borrower.recorder.disconnected()?.code == .closedByPeer)
    }
}
