import AsyncSocketsTesting
import Foundation
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Collected writes are always sent, whatever happens next.
@Suite(.timeLimit(.patient)) struct StrandedWriteTests {
    /// Returns a socket used by tasks, and the peer that has sent two lines to it.
    private func connect(_ text: String = "one\r\ntwo\r\n") throws -> (AsyncSocket, peer: RawSocket, own: RawSocket) {
        let (peer, own) = try RawSocket.pair(waitLimit: .patient)
        try peer.send(text)
        return (try AsyncSocket(adopting: own.duplicate()), peer, own)
    }

    /// Connects the only socket on a loop. Its task can perform three operations before the loop checks
    /// the time.
    private func connectAlone() async throws -> (AsyncSocket, peer: RawSocket) {
        let listener = try RawSocket.listening(waitLimit: .patient)
        let socket = AsyncSocket()
        let loop = try SocketEventLoop()
        socket.stay(on: loop)
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        let peer = try listener.accepted()
        try peer.send("one\r\ntwo\r\n")
        try await socket.hasBuffered(10)
        return (socket, peer)
    }

    /// Runs `body` in a task on the loop of `socket`.
    private func onLoop<Value: Sendable>(
        of socket: AsyncSocket, _ body: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        try await Task(executorPreference: socket.executor, operation: body).value
    }

    /// Why a write is collected.
    enum Reason: CaseIterable, Sendable {
        case unreadBytes, secondWrite
    }

    /// Writes "answer", which is collected, so the peer has not received it.
    private static func answer(_ socket: AsyncSocket, _ peer: RawSocket, _ reason: Reason = .unreadBytes) async throws {
        switch reason {
        case .unreadBytes: #expect(try await socket.readLine() == "one")
        case .secondWrite:
            try await socket.write("first")
            #expect(try peer.receive(atLeast: 5) == "first")
        }
        try await socket.write("answer")
        #expect(!peer.hasInput)
    }

    private func connect(for reason: Reason) throws -> (AsyncSocket, peer: RawSocket, own: RawSocket) {
        try connect(reason == .unreadBytes ? "one\r\ntwo\r\n" : "")
    }

    // MARK: - Tasks

    enum Step: CaseIterable, Sendable {
        case readMore, sleep, otherExecutor, end, cancellation, error, close
    }

    @Test(.unmodifiedKernel, arguments: Step.allCases, Reason.allCases)
    func whatATaskHasWrittenLeavesWhenItHasToWait(step: Step, reason: Reason) async throws {
        let (socket, peer, _) = try connect(for: reason)
        let (isWritten, isReceived) = (try TestSignal(), try TestSignal())
        let task = Task(executorPreference: socket.executor) {
            try await Self.answer(socket, peer, reason)
            isWritten.fire()
            switch step {
            case .readMore: _ = try await socket.read(exactly: 100)
            case .sleep: try await isReceived.wait(within: .patient)
            case .otherExecutor:
                try await withTaskExecutorPreference(globalConcurrentExecutor) {
                    // Not on the loop, because this blocks until the reply is received.
                    let text = try peer.receive(atLeast: 6)
                    #expect(text == "answer")
                }
            case .end: break
            case .cancellation:
                withUnsafeCurrentTask { $0?.cancel() }
                _ = try await socket.read(exactly: 100)
            case .error: throw CancellationError()
            case .close: try await socket.close()
            }
        }
        if step == .otherExecutor { return try await task.value }
        try await isWritten.wait(within: .patient)
        #expect(try await received(6, by: peer) == "answer")
        isReceived.fire()
        task.cancel()
        _ = await task.result
    }

    /// Uses its own thread, because it blocks.
    private func received(_ count: Int, by peer: RawSocket) async throws -> String {
        try await withTaskExecutorPreference(TestThreads()) { try peer.receive(atLeast: count) }
    }

    enum Call: CaseIterable, Sendable {
        case flush, disconnect, disconnectAfterWriting, closeWriteStream
    }

    @Test(.unmodifiedKernel, arguments: Call.allCases, Reason.allCases)
    func someCallsSendAtOnceWhatWasCollected(call: Call, reason: Reason) async throws {
        let (socket, peer, _) = try connect(for: reason)
        try await onLoop(of: socket) {
            try await Self.answer(socket, peer, reason)
            switch call {
            case .flush: socket.flush()
            case .disconnect: socket.disconnect()
            case .disconnectAfterWriting: socket.disconnectAfterWriting()
            case .closeWriteStream: socket.closeWriteStream()
            }
            // The job has not yet returned to the loop.
            #expect(peer.hasInput)
            #expect(try peer.receive(atLeast: 6) == "answer")
        }
    }

    /// A loop of small writes needs one system call for 64 KiB. It suspends if the kernel's buffer is full.
    @Test func aLoopOfWritesIsSentInLargePieces() async throws {
        let (socket, peer) = try await connectAlone()
        let line = Data("0123456789abcdef".utf8)
        let count = 40_000
        async let text = received(count * line.count, by: peer)
        try await onLoop(of: socket) {
            for _ in 0..<count { try await socket.write(line) }
        }
        #expect(try await text == String(repeating: "0123456789abcdef", count: count))
    }

    @Test(arguments: [false, true]) func withoutUnreadBytesAWriteLeavesAtOnce(isLine: Bool) async throws {
        let (socket, peer, _) = try connect("one\r\n")
        try await onLoop(of: socket) {
            #expect(try await socket.readLine() == "one")
            if isLine { try await socket.writeLine("answer") } else { try await socket.write("answer") }
            #expect(peer.hasInput)
        }
    }

    /// Copying a large write would cost more than a system call.
    @Test(.unmodifiedKernel) func aLargeWriteLeavesAtOnce() async throws {
        let (socket, peer, _) = try connect("")
        try await onLoop(of: socket) {
            try await socket.write("first")
            #expect(try peer.receive(atLeast: 5) == "first")
            try await socket.write(Data(count: 4096))
            #expect(peer.hasInput)
        }
    }

    @Test func outsideOfItsLoopATaskCollectsNothing() async throws {
        let (socket, peer, _) = try connect()
        try await withTaskExecutorPreference(TestThreads()) {
            #expect(try await socket.readLine() == "one")
            try await socket.write("answer")
            #expect(peer.hasInput)
        }
    }

    @Test(.unmodifiedKernel) func sixtyFourKibibytesLeaveInTheMiddleOfAJob() async throws {
        let (socket, peer) = try await connectAlone()
        let oneLess = Data(count: 64 * 1024 - "answer".utf8.count - 1)
        try await onLoop(of: socket) {
            try await Self.answer(socket, peer)
            try await socket.write(oneLess)
            #expect(!peer.hasInput)
            try await socket.write("x")
            #expect(peer.hasInput)
        }
        let text = try await received(64 * 1024, by: peer)
        #expect(text.utf8.count == 64 * 1024 && text.hasSuffix("x"))
    }

    /// The last reply is sent together with the others.
    @Test(.unmodifiedKernel) func theAnswerToTheLastMessageLeavesAtOnce() async throws {
        let (socket, peer) = try await connectAlone()
        try await onLoop(of: socket) {
            try await Self.answer(socket, peer)
            #expect(try await socket.readLine() == "two")
            #expect(!peer.hasInput)
            try await socket.write("last")
            #expect(peer.hasInput)
            #expect(try peer.receive(atLeast: 10) == "answerlast")
        }
    }

    @Test func aFileFollowsWhatWasCollected() async throws {
        let (socket, peer, _) = try connect()
        let folder = try TemporaryFolder()
        try Data("file").write(to: folder.url("file"))
        let path = folder.path("file")
        try await onLoop(of: socket) {
            try await Self.answer(socket, peer)
            try await socket.write(contentsOfFile: path)
            try await socket.write("end")
        }
        #expect(try await received(13, by: peer) == "answerfileend")
    }

    /// The program's code uses the job's time, and collected bytes must not wait for its end.
    @Test(.unmodifiedKernel) func aWriteOfAnotherThreadTakesWithItWhatWasCollected() async throws {
        let (socket, peer, _) = try connect()
        try await onLoop(of: socket) {
            try await Self.answer(socket, peer)
            Thread.detachNewThread { socket.write(Data("other"), tag: 0) }
            #expect(try peer.receive(atLeast: 11) == "answerother")
        }
    }

    @Test(.unmodifiedKernel) func whatPerformWritesComesAfterWhatWasCollected() async throws {
        let (socket, peer, _) = try connect()
        try await onLoop(of: socket) {
            try await Self.answer(socket, peer)
            socket.perform { if let descriptor = $0 { _ = write(descriptor, "raw", 3) } }
            #expect(try peer.receive(atLeast: 9) == "answerraw")
        }
    }

    @Test(.unmodifiedKernel) func aConnectionThatTooManyBytesEndHasSentWhatWasCollected() async throws {
        let (socket, peer, _) = try connect("one\r\n" + String(repeating: "x", count: 1000))
        try await onLoop(of: socket) {
            try await Self.answer(socket, peer)
            #expect(await outcome { try await socket.readLine(maxLength: 100) } == .failed(.readMaxedOut))
        }
        #expect(try await received(6, by: peer) == "answer")
    }

    @Test func collectedBytesGoBeforeTLS() async throws {
        let peer = try ScriptedPeer.listening([
            .send("one\r\ntwo\r\n"), .expect("answer"), .startTLS(try TestCertificates.server()), .send("secret\r\n"),
        ])
        let socket = AsyncSocket()
        try await socket.connect(to: "127.0.0.1", port: peer.port)
        try await socket.hasBuffered(10)
        try await onLoop(of: socket) {
            #expect(try await socket.readLine() == "one")
            try await socket.write("answer")
            #expect(try await socket.readLine() == "two")
            try await socket.startTLS(settings: TestCertificates.client())
            #expect(try await socket.readLine() == "secret")
        }
        _ = try await peer.finish()
    }

    // MARK: - Full kernel buffers

    /// Fills the kernel's buffer behind the socket's back.
    private static func fill(_ own: RawSocket) {
        let flags = Int32(MSG_DONTWAIT) | Int32(MSG_NOSIGNAL)
        let piece = [UInt8](repeating: 0, count: 4096)
        while send(own.descriptor, piece, piece.count, flags) > 0 {}
        while send(own.descriptor, piece, 1, flags) > 0 {}
    }

    @Test func collectedBytesThatTheKernelDoesNotTakeInTimeEndTheConnection() async throws {
        let (socket, peer, own) = try connect()
        try await onLoop(of: socket) {
            #expect(try await socket.readLine() == "one")
            Self.fill(own)
            try await socket.write("answer", timeout: .milliseconds(50))
            #expect(await outcome { try await socket.read(exactly: 100) } == .failed(.writeTimeout))
        }
        withExtendedLifetime(peer) {}
    }

    @Test(arguments: [false, true]) func aFailureOfCollectedBytesIsReportedToTheNextOperation(isRead: Bool) async throws {
        let (socket, peer, own) = try connect()
        try await onLoop(of: socket) {
            #expect(try await socket.readLine() == "one")
            shutdown(own.descriptor, Int32(SHUT_WR))
            for _ in 0..<2 { try await socket.write("answer") }
            socket.flush()
            let next = await outcome {
                if isRead { _ = try await socket.read(exactly: 100) } else { try await socket.write("more") }
            }
            #expect(next == .failed(.connectionReset))
        }
        withExtendedLifetime(peer) {}
    }

    /// If its peer does not read, a task cannot write more than may be collected.
    @Test func behindCollectedBytesTheNextWriteWaits() async throws {
        let (socket, peer, own) = try connect()
        let piece = Data(count: 1024)
        let count = try await onLoop(of: socket) { () async throws -> Int in
            #expect(try await socket.readLine() == "one")
            Self.fill(own)
            for count in 0..<1000 {
                let result = await outcome { try await socket.write(piece, timeout: .seconds(1)) }
                if result != .served { return count }
            }
            return 1000
        }
        #expect((1...64).contains(count))
        withExtendedLifetime(peer) {}
    }

    // MARK: - Delegates

    private func connect(
        _ queue: DispatchQueue?, _ text: String = "one\r\ntwo\r\n",
        _ reaction: @escaping @Sendable (AsyncSocket, String, RawSocket) -> Void
    ) throws -> (AsyncSocket, Recorder, peer: RawSocket) {
        let (peer, own) = try RawSocket.pair(waitLimit: .patient)
        try peer.send(text)
        let recorder = Recorder { socket, told in
            if case .read(let line, _) = told { reaction(socket, String(decoding: line.dropLast(2), as: UTF8.self), peer) }
        }
        return (try Self.socket(adopting: own, recorder, queue), recorder, peer)
    }

    private static func socket(
        adopting own: RawSocket, _ recorder: Recorder, _ queue: DispatchQueue?, socketQueue: DispatchQueue? = nil
    ) throws -> AsyncSocket {
        if let queue { return try AsyncSocket(adopting: own.duplicate(), delegate: recorder, delegateQueue: queue) }
        return try AsyncSocket(adopting: own.duplicate(), inlineDelegate: recorder, socketQueue: socketQueue)
    }

    enum Reaction: CaseIterable, Sendable { case nothing, readMore, disconnect, disconnectAfterWriting, closeWriteStream }

    @Test(.unmodifiedKernel, arguments: Reaction.allCases, [Link.Delivery.inline, .delegateQueue])
    func whatADelegateHasWrittenLeavesWhenItHasReturned(reaction: Reaction, delivery: Link.Delivery) async throws {
        let (socket, recorder, peer) = try connect(delivery.delegateQueue) { socket, line, _ in
            socket.write(Data("answer"), withTimeout: .patient, tag: 0)
            switch reaction {
            case .nothing: break
            case .readMore: socket.readData(toLength: 100, withTimeout: .patient, tag: 0)
            case .disconnect: socket.disconnect()
            case .disconnectAfterWriting: socket.disconnectAfterWriting()
            case .closeWriteStream: socket.closeWriteStream()
            }
        }
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await received(6, by: peer) == "answer")
        withExtendedLifetime(recorder) {}
    }

    /// Within the callback, and also in one of several of a block.
    @Test(.unmodifiedKernel, arguments: [Link.Delivery.inline, .delegateQueue])
    func aDelegateMayHaveItsAnswerSentAtOnce(delivery: Link.Delivery) async throws {
        let (socket, recorder, peer) = try connect(delivery.delegateQueue, "") { socket, line, peer in
            guard line == "one" else { return }
            socket.write(Data("answer"), withTimeout: .patient, tag: 0)
            #expect(!peer.hasInput)
            socket.flush()
            #expect(throws: Never.self) { try peer.receive(atLeast: 6) }
        }
        for _ in 0..<2 { socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0) }
        try peer.send("one\r\ntwo\r\n")
        for text in ["one\r\n", "two\r\n"] { #expect(try await recorder.readText() == text) }
    }

    /// What another thread asks for meanwhile makes the callback's requests wait too, but not until its end.
    @Test(.unmodifiedKernel) func aMessageOfAnotherThreadDoesNotHoldUpAFlush() async throws {
        let (socket, recorder, _) = try connect(nil) { socket, line, peer in
            let hasPosted = DispatchSemaphore(value: 0)
            Thread.detachNewThread {
                socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
                hasPosted.signal()
            }
            hasPosted.wait()
            socket.write(Data("answer"), withTimeout: .patient, tag: 0)
            socket.flush()
            #expect(throws: Never.self) { try peer.receive(atLeast: 6) }
        }
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        for text in ["one\r\n", "two\r\n"] { #expect(try await recorder.readText() == text) }
    }

    /// The peer has closed its write side, and still receives every reply.
    @Test(arguments: [Link.Delivery.inline, .delegateQueue, .socketQueue])
    func answersToAPeerThatHasEndedItsSideArrive(delivery: Link.Delivery) async throws {
        let (peer, own) = try RawSocket.pair(waitLimit: .patient)
        let text = (0..<40).map { "line \($0)\r\n" }.joined()
        try peer.send(text)
        peer.finish()
        let recorder = Recorder { socket, told in
            guard case .read(let line, _) = told else { return }
            socket.write(line, withTimeout: .patient, tag: 0)
            socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        }
        let socket = try Self.socket(
            adopting: own, recorder, delivery.delegateQueue, socketQueue: delivery.socketQueue)
        socket.autoDisconnectOnClosedReadStream = false
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await received(text.utf8.count, by: peer) == text)
        withExtendedLifetime(recorder) {}
    }
}
