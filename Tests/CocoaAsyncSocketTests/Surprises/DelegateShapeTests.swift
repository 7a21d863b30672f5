import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing
import XCTest

/// A Swift 6 delegate on the main actor.
@MainActor private final class Screen: NSObject, @preconcurrency GCDAsyncSocketDelegate {
    private(set) var text = ""

    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int) {
        text += String(decoding: data, as: UTF8.self)
    }
}

/// Test cases are often delegates. On Linux, XCTestCase is not an NSObject.
private final class TestCase: XCTestCase, GCDAsyncSocketDelegate, GCDAsyncUdpSocketDelegate {
    private(set) var lines: [String] = []

    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int) {
        lines.append(String(decoding: data, as: UTF8.self))
    }

    func udpSocket(_ sock: GCDAsyncUdpSocket, didSendDataWithTag tag: Int) { lines.append("sent \(tag)") }
}

@Suite(.timeLimit(.patient)) struct DelegateShapeTests {
    @Test func aTestCaseMayBeADelegate() async throws {
        let peer = try ScriptedPeer.listening([.send("hello"), .expectEnd])
        let queue = DispatchQueue(label: "delegate")
        let delegate = TestCase(name: "delegate") { _ in }
        let socket = GCDAsyncSocket(delegate: delegate, delegateQueue: queue)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.readData(toLength: 5, withTimeout: -1, tag: 1)
        try await eventually("it has read") { queue.sync { delegate.lines } == ["hello"] }
        let datagrams = GCDAsyncUdpSocket(delegate: delegate, delegateQueue: queue)
        datagrams.send(Data("x".utf8), toHost: "127.0.0.1", port: 9, withTimeout: -1, tag: 2)
        try await eventually("it has sent") { queue.sync { delegate.lines } == ["hello", "sent 2"] }
        datagrams.close()
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func aReadTimesOutIfTheDelegateHasNoTimeoutMethods() async throws {
        let peer = try ScriptedPeer.listening([.expectEnd])
        let delegate = ReadersDelegate()
        let socket = makeSocket(delegate)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.readData(withTimeout: 0.01, tag: 1)
        try await eventually("the read has timed out") { delegate.endCount == 1 }
        #expect((delegate.error as? GCDAsyncSocketError)?.code == .readTimeoutError)
        _ = try await peer.finish()
    }

    @Test func aDelegateWithExclamationMarksIsCalled() async throws {
        let peer = try ScriptedPeer.listening([.expect("question"), .send("answer"), .expectEnd])
        let delegate = OlderDiary()
        let socket = makeSocket(delegate)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.write(Data("question".utf8), withTimeout: -1, tag: 1)
        socket.readData(toLength: 6, withTimeout: -1, tag: 2)
        // The elapsed time is exactly the timeout, and then the timeout plus the extension.
        socket.readData(withTimeout: 0.01, tag: 3)
        try await eventually("the read has timed out") { delegate.lines.last == "ended 4" }
        #expect(Set(delegate.lines.prefix(3)) == ["connected 127.0.0.1", "wrote 1", "read answer 2"])
        #expect(delegate.lines.dropFirst(3) == ["late 0.01", "late 0.03", "ended 4"])
        _ = try await peer.finish()
    }

    @Test func aDelegateOfUDPWithExclamationMarksIsCalled() async throws {
        let delegate = OlderDiary()
        let socket = GCDAsyncUdpSocket(delegate: delegate, delegateQueue: DispatchQueue(label: "delegate"))
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        try socket.beginReceiving()
        socket.send(Data("hello".utf8), toHost: "127.0.0.1", port: socket.localPort(), withTimeout: -1, tag: 5)
        try await eventually("both are told") { Set(delegate.lines) == ["sent 5", "received hello"] }
        socket.close()
    }

    @Test func aCallbackImplementedOnlyInASubclassIsNotCalled() async throws {
        let peer = try ScriptedPeer.listening([.close])
        let delegate = LateSubclass()
        let socket = makeSocket(delegate)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.readData(withTimeout: -1, tag: 1)
        try await eventually("the connection has ended") { socket.isDisconnected }
        socket.delegateQueue?.sync {}
        // The pitfall described in the guide: the method must be declared where the conformance is.
        #expect(delegate.calls == 0)
        _ = try await peer.finish()
    }

    @Test func aDelegateOnTheMainActorIsCalledOnTheMainQueue() async throws {
        let peer = try ScriptedPeer.listening([.send("hello")])
        let screen = await Screen()
        let socket = GCDAsyncSocket(delegate: screen, delegateQueue: .main)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.readData(toLength: 5, withTimeout: -1, tag: 1)
        try await eventually("the text is there") { await screen.text == "hello" }
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func theDelegateAndItsQueueCanBeReadAndSet() {
        let (first, second) = (Diary(), Diary())
        let (queue, other) = (DispatchQueue(label: "first"), DispatchQueue(label: "other"))
        let socket = GCDAsyncSocket(delegate: first, delegateQueue: queue)
        #expect(socket.delegate === first && socket.delegateQueue === queue)
        socket.delegate = second
        socket.delegateQueue = other
        var (delegate, delegateQueue): ((any GCDAsyncSocketDelegate)?, DispatchQueue?)
        socket.getDelegate(&delegate, delegateQueue: &delegateQueue)
        #expect(delegate === second && delegateQueue === other)
        socket.synchronouslySetDelegate(first, delegateQueue: queue)
        socket.synchronouslySetDelegate(second)
        socket.synchronouslySetDelegateQueue(other)
        #expect(socket.delegate === second && socket.delegateQueue === other)
        socket.setDelegate(nil, delegateQueue: nil)
        #expect(socket.delegate == nil && socket.delegateQueue == nil)
    }

    @Test func theDelegateIsNotRetained() {
        let socket = GCDAsyncSocket(delegate: Diary(), delegateQueue: .main)
        #expect(socket.delegate == nil)
        let udp = GCDAsyncUdpSocket(delegate: DatagramDiary(), delegateQueue: .main)
        #expect(udp.delegate() == nil)
    }
}
