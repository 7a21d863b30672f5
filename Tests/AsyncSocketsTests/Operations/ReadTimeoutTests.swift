import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Reads that time out are handled according to the delegate and the settings.
@Suite(.timeLimit(.patient)) struct ReadTimeoutTests {
    private func connect(
        to peer: ScriptedPeer, _ recorder: Recorder, queue: DispatchQueue? = nil
    ) async throws -> AsyncSocket {
        let socket = AsyncSocket(recorder, calledOn: queue)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        return socket
    }

    @Test(arguments: [false, true])
    func d20AReadTimeoutCanReturnTheBytesAndKeepTheConnection(secure: Bool) async throws {
        let start: [ScriptedPeer.Step] = secure ? [.startTLS(try TestCertificates.server())] : []
        let peer = try ScriptedPeer.listening(start + [.send("abc"), .expect("go on"), .send("def\r\n")])
        let recorder = Recorder(patientUntil: 2)
        let socket = try await connect(to: peer, recorder)
        socket.keepsConnectionOnReadTimeout = true
        if secure {
            try socket.beginTLS(settings: TestCertificates.client())
            try await recorder.secured()
        }
        socket.readData(toLength: 1, withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText() == "a")
        // The rest of the peer's data was received with that byte.
        socket.readData(toLength: 5, withTimeout: 0.05, tag: 1)
        let late = try await recorder.notRead()
        #expect((late.data, late.tag) == (Data("bc"), 1))
        #expect(late.error.code == .readTimeout)
        socket.write(Data("go on"), withTimeout: .patient, tag: 2)
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 3)
        #expect(try await recorder.readText() == "def\r\n")
    }

    @Test(arguments: ["length", "delimiter", "buffer"])
    func d20TheBytesReceivedBeforeATimeoutAreDeliveredOnce(kind: String) async throws {
        let peer = try ScriptedPeer.listening([.send("abc"), .expect("go on"), .send("def\r\n")])
        let recorder = Recorder(recordsProgress: true, patientUntil: 3)
        let socket = try await connect(to: peer, recorder)
        socket.keepsConnectionOnReadTimeout = true
        let buffer = ReadBuffer()
        switch kind {
        case "length": socket.readData(toLength: 10, withTimeout: 0.2, tag: 1)
        case "delimiter": socket.readData(to: .lineEnd, withTimeout: 0.2, tag: 1)
        default: socket.readData(toLength: 10, withTimeout: 0.2, buffer: buffer, tag: 1)
        }
        var told = await recorder.next()
        var progress = 0
        while case .readPartial(let count, tag: 1) = told {
            progress += count
            told = await recorder.next()
        }
        #expect(progress == 3)
        guard case .notRead(let data, tag: 1, let error) = told else { throw Unexpected(description: "\(told)") }
        #expect(data == Data("abc"))
        #expect(error.code == .readTimeout)
        if kind == "buffer" { #expect(buffer.data == Data("abc")) }
        socket.write(Data("go on"), withTimeout: .patient, tag: 2)
        socket.readData(toLength: 5, withTimeout: .patient, tag: 3)
        var wrote = await recorder.next()
        while case .wrotePartial(1...4, tag: 2) = wrote { wrote = await recorder.next() }
        guard case .wrote(tag: 2) = wrote else { throw Unexpected(description: "\(wrote)") }
        var rest = await recorder.next()
        while case .readPartial = rest { rest = await recorder.next() }
        guard case .read(Data("def\r\n"), tag: 3) = rest else { throw Unexpected(description: "\(rest)") }
    }

    /// A delegate whose timeout callbacks return only when the test allows it.
    private final class LateAnswer: AsyncSocketDelegate, Sendable {
        let asked = AsyncStream<Void>.makeStream()
        let mayAnswer = DispatchSemaphore(value: 0)
        let recorder = Recorder()

        func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16) {
            recorder.socket(socket, didConnectToHost: host, port: port)
        }
        func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
            recorder.socket(socket, didRead: data, withTag: tag)
        }
        func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
            recorder.socket(socket, didWriteDataWithTag: tag)
        }
        func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
            recorder.socketDidDisconnect(socket, withError: error)
        }
        func socket(
            _ socket: AsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
        ) -> TimeInterval { answer() }
        func socket(
            _ socket: AsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
        ) -> TimeInterval { answer() }

        private func answer() -> TimeInterval {
            asked.continuation.yield()
            return mayAnswer.wait(timeout: .now() + 60) == .success ? 0 : 60
        }
    }

    @Test func d6ALateTimeoutResponseForAReadDoesNotAffectTheNextRead() async throws {
        let (first, second) = (try TestSignal(), try TestSignal())
        let peer = try ScriptedPeer.listening([.wait(for: first), .send("one"), .wait(for: second), .send("two")])
        let delegate = LateAnswer()
        let socket = AsyncSocket(delegate: delegate, delegateQueue: DispatchQueue(label: "delegate"))
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await delegate.recorder.connected()
        socket.readData(toLength: 3, withTimeout: 0.01, tag: 1)
        socket.readData(toLength: 3, withTimeout: -1, tag: 2)
        for await _ in delegate.asked.stream { break }
        // The delegate has not returned yet. The read that timed out completes, and the next one becomes
        // current.
        first.fire()
        try await eventually("the second read is current") { socket.readProgress?.tag == 2 }
        delegate.mayAnswer.signal()
        #expect(try await delegate.recorder.readText() == "one")
        second.fire()
        #expect(try await delegate.recorder.readText() == "two")
    }

    @Test func d6ALateTimeoutResponseForAWriteDoesNotAffectTheNextWrite() async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let delegate = LateAnswer()
        let socket = AsyncSocket(delegate: delegate, delegateQueue: DispatchQueue(label: "delegate"))
        try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        try await delegate.recorder.connected()
        let peer = try await atListener.accepted()
        // Each is more than the kernel buffers of both sides hold.
        let count = 64 << 20
        socket.maximumPendingWriteBytes = .max
        socket.write(Data(count: count), withTimeout: 0.01, tag: 1)
        socket.write(Data(count: count), withTimeout: -1, tag: 2)
        for await _ in delegate.asked.stream { break }
        // The delegate has not returned yet. The write that timed out completes, and the next one becomes
        // current.
        peer.readData(toLength: count, withTimeout: .patient, tag: 1)
        try await eventually("the second write is current") { socket.writeProgress?.tag == 2 }
        delegate.mayAnswer.signal()
        #expect(try await delegate.recorder.wrote() == 1)
        peer.readData(toLength: count, withTimeout: .patient, tag: 2)
        #expect(try await delegate.recorder.wrote() == 2)
        withExtendedLifetime((listener, atListener, socket, peer)) {}
    }

    @Test func theDelegateCanExtendAReadTimeoutRepeatedly() async throws {
        let peer = try ScriptedPeer.listening([.expect("enough"), .send("late")])
        let asked = AskCounter()
        let socket = AsyncSocket(inlineDelegate: asked)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        socket.readData(toLength: 4, withTimeout: 0.01, tag: 1)
        #expect(try await asked.recorder.readText() == "late")
        #expect(asked.recorder.unread.isEmpty)
        _ = try await peer.finish()
    }

    /// Extends the timeout by ten milliseconds twice, and then by a minute, in which the peer continues.
    private final class AskCounter: AsyncSocketDelegate, Sendable {
        let recorder = Recorder()
        private let answers = Locked([0.01, 0.01, 60])

        func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
            recorder.socket(socket, didRead: data, withTag: tag)
        }
        func socket(
            _ socket: AsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
        ) -> TimeInterval {
            let answer = answers.withLock { $0.isEmpty ? 0 : $0.removeFirst() }
            if answer == 60 { socket.write(Data("enough"), withTimeout: .patient, tag: 2) }
            return answer
        }
    }
}
