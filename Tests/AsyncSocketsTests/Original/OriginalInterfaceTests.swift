import AsyncSockets
import Dispatch
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Parts of the original's API that no other suite tests. See `Documentation/GCDAsyncSocketReference.md`.
@Suite(.timeLimit(.patient)) struct OriginalInterfaceTests {
    @Test func readsEndAtEachPredefinedDelimiter() async throws {
        let link = try await Link.make()
        link.server.write(Data("one\r\ntwo\nthree\rfour\0"), withTimeout: .patient, tag: 0)
        for delimiter in [AsyncSocket.crlf, AsyncSocket.lf, AsyncSocket.cr, AsyncSocket.zero] {
            link.client.readData(to: delimiter, withTimeout: .patient, tag: 0)
        }
        for expected in ["one\r\n", "two\n", "three\r", "four\0"] {
            #expect(try await link.atClient.readText() == expected)
        }
    }

    @Test func aListenerOnAllInterfacesAcceptsIPv4AndIPv6() async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onPort: 0)
        var clients: [AsyncSocket] = []
        for host in ["127.0.0.1", "127.0.0.9", "::1"] {
            let atClient = Recorder()
            let client = AsyncSocket(inlineDelegate: atClient)
            try client.connect(toHost: host, onPort: listener.localPort)
            try await atClient.connected()
            let server = try await atListener.accepted()
            #expect(server.localHost == host)
            #expect(client.isIPv6 == (host == "::1"))
            clients.append(client)
        }
        withExtendedLifetime(clients) {}
    }

    @Test(arguments: ["127.0.0.1", "::1"])
    func aConnectionReportsItsAddressFamily(_ host: String) async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: host, port: 0)
        let atClient = Recorder()
        let client = AsyncSocket(inlineDelegate: atClient)
        #expect(!client.isIPv4 && !client.isIPv6)
        try client.connect(toHost: host, onPort: listener.localPort)
        try await atClient.connected()
        let server = try await atListener.accepted()
        for socket in [client, server] {
            #expect(socket.isIPv4 == (host == "127.0.0.1"))
            #expect(socket.isIPv6 == (host == "::1"))
        }
    }

    /// Records on which of its queues it is called.
    private final class QueueNoter: AsyncSocketDelegate, Sendable {
        static let key = DispatchSpecificKey<String>()
        let queues = (DispatchQueue(label: "first"), DispatchQueue(label: "second"))
        let names = AsyncStream<String>.makeStream()

        init() {
            queues.0.setSpecific(key: Self.key, value: "first")
            queues.1.setSpecific(key: Self.key, value: "second")
        }

        private func note() { names.continuation.yield(DispatchQueue.getSpecific(key: Self.key) ?? "none") }

        func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16) { note() }
        func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) { note() }
    }

    @Test func theDelegateQueueCanBeChanged() async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let noter = QueueNoter()
        let socket = AsyncSocket(delegate: noter, delegateQueue: noter.queues.0)
        try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort)
        var names = noter.names.stream.makeAsyncIterator()
        #expect(await names.next() == "first")
        for (queue, name) in [(noter.queues.1, "second"), (nil, "none"), (noter.queues.0, "first")] {
            socket.call(noter, on: queue)
            #expect(socket.delegateQueue === queue)
            socket.write(Data("x"), withTimeout: .patient, tag: 0)
            #expect(await names.next() == name)
        }
        withExtendedLifetime(atListener) {}
    }

    /// Extends a write's timeout by a short time, and then by a minute.
    private final class Patient: AsyncSocketDelegate, Sendable {
        let asked = AsyncStream<(elapsed: TimeInterval, bytesDone: Int)>.makeStream()
        let ends = AsyncStream<AsyncSocketError?>.makeStream()
        let written = AsyncStream<Int>.makeStream()
        private let count = Locked(0)

        func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) { written.continuation.yield(tag) }
        func socket(
            _ socket: AsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
        ) -> TimeInterval {
            asked.continuation.yield((elapsed, length))
            return count.withLock { count in
                count += 1
                return count < 2 ? 0.05 : 60
            }
        }
        func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) { ends.continuation.yield(error) }
    }

    @Test(arguments: [false, true])
    func theDelegateCanExtendAWriteTimeout(secure: Bool) async throws {
        let link = try await Link.make()
        if secure { try await link.secure(client: TestCertificates.client(), server: TestCertificates.server()) }
        let patient = Patient()
        link.client.changeDelegate(to: patient)
        link.client.write(Data(count: 64 << 20), withTimeout: 0.05, tag: 7)
        var asked = patient.asked.stream.makeAsyncIterator()
        let first = try #require(await asked.next())
        let second = try #require(await asked.next())
        // Exactly the timeout plus the extension.
        #expect(first.elapsed == 0.05 && second.elapsed == 0.05 + 0.05)
        #expect(second.bytesDone > 0 && second.bytesDone < 64 << 20)
        link.server.readData(toLength: 64 << 20, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readData().count == 64 << 20)
        var written = patient.written.stream.makeAsyncIterator()
        #expect(await written.next() == 7)
        #expect(link.client.isConnected)
    }
}
