import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// A Swift 6 subclass with its own initializer.
private final class StrictSocket: GCDAsyncSocket {
    let number: Int

    init(number: Int) {
        self.number = number
        super.init(delegate: nil, delegateQueue: nil, socketQueue: nil)
    }
}

@Suite(.timeLimit(.patient)) struct AcceptingTests {
    @Test func aListenerAcceptsIPv4AndIPv6OnOnePort() async throws {
        let diary = Diary()
        let listener = makeSocket(diary)
        try listener.accept(onPort: 0)
        #expect(listener.isIPv4 && listener.isIPv6 && listener.localPort > 0)
        for (number, host) in ["127.0.0.1", "::1"].enumerated() {
            let atClient = Diary()
            let client = makeSocket(atClient)
            try client.connect(toHost: host, onPort: listener.localPort)
            try await atClient.wait(for: "connected to \(host)")
            try await eventually("it is accepted") { diary.accepted.count == number + 1 }
            #expect(client.isIPv6 == (host == "::1") && client.isIPv4 != client.isIPv6)
        }
    }

    /// Existing programs stop their server in this way. A listener has no pending reads or writes.
    @Test(arguments: 0..<3) func eachKindOfDisconnectClosesAListener(_ kind: Int) async throws {
        let diary = Diary()
        let listener = makeSocket(diary)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let port = listener.localPort
        [listener.disconnectAfterReading, listener.disconnectAfterWriting, listener.disconnectAfterReadingAndWriting][kind]()
        #expect(listener.isDisconnected)
        try await diary.wait(for: "disconnected")
        // Another test may use the port for a moment, or be starting a program, which has a copy of each
        // descriptor until exec.
        try await eventually("the port is free") {
            do {
                try listener.accept(onInterface: "127.0.0.1", port: port)
                return true
            } catch let error as NSError where error.code == Int(EADDRINUSE) { return false }
        }
        #expect(listener.localPort == port)
        listener.disconnect()
    }

    @Test func anAcceptedSocketInheritsOnlyTheDelegateAndItsQueue() async throws {
        let diary = Diary()
        let listener = makeSocket(diary)
        listener.userData = "the listener's"
        listener.autoDisconnectOnClosedReadStream = false
        listener.isIPv6Enabled = false
        try listener.accept(onInterface: "localhost", port: 0)
        let peer = try ScriptedPeer.connecting(toPort: listener.localPort, [.send("hi")])
        try await diary.wait(for: "accepted")
        let server = diary.accepted[0]
        #expect(server.delegate === diary && server.delegateQueue === listener.delegateQueue && server.userData == nil)
        #expect(server.autoDisconnectOnClosedReadStream && server.isIPv6Enabled && server.isConnected)
        server.readData(toLength: 2, withTimeout: -1, tag: 1)
        try await diary.wait(for: "read 1: hi")
        listener.disconnect()
        // Accepted connections stay open.
        #expect(listener.isDisconnected && server.isConnected)
        server.disconnect()
        _ = try await peer.finish()
    }

    @Test func anUnretainedAcceptedSocketIsClosed() async throws {
        let diary = Diary()
        diary.keepsSockets = false
        let listener = makeSocket(diary)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let peer = try ScriptedPeer.connecting(toPort: listener.localPort, [.expectEnd])
        _ = try await peer.finish()
        #expect(diary.lines == ["accepted"])
    }

    @Test func d16WithoutADelegateAnAcceptedConnectionIsClosed() async throws {
        let (listener, diary) = try Wire.listening()
        listener.delegateQueue = nil
        let peer = try ScriptedPeer.connecting(toPort: listener.localPort, [.expectEnd])
        _ = try await peer.finish()
        #expect(diary.lines.isEmpty)
    }

    @Test func anAcceptedSocketRunsOnTheQueueFromTheDelegate() async throws {
        let key = DispatchSpecificKey<Int>()
        let socketQueue = DispatchQueue(label: "accepted")
        socketQueue.setSpecific(key: key, value: 23)
        let diary = Diary()
        diary.nextSocketQueue = socketQueue
        let listener = makeSocket(diary)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let peer = try ScriptedPeer.connecting(toPort: listener.localPort, [.send("x")])
        try await diary.wait(for: "accepted")
        var number: Int?
        diary.accepted[0].perform { number = DispatchQueue.getSpecific(key: key) }
        #expect(number == 23)
        diary.forget()
        _ = try await peer.finish()
    }

    @Test func aListenerCreatesSocketsOfItsOwnClass() async throws {
        let diary = Diary()
        let listener = NamedSocket(delegate: diary, delegateQueue: DispatchQueue(label: "delegate"))
        listener.name = "the listener"
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let peer = try ScriptedPeer.connecting(toPort: listener.localPort, [.expectEnd])
        try await diary.wait(for: "accepted")
        #expect((diary.accepted[0] as? NamedSocket)?.name == "unnamed")
        diary.forget()
        _ = try await peer.finish()
    }

    @Test func anOverriddenInitializerCreatesTheAcceptedSockets() async throws {
        let diary = Diary()
        let listener = CountedSocket(delegate: diary, delegateQueue: DispatchQueue(label: "delegate"))
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let peer = try ScriptedPeer.connecting(toPort: listener.localPort, [.expectEnd])
        try await diary.wait(for: "accepted")
        let server = try #require(diary.accepted[0] as? CountedSocket)
        #expect(server.serial == 7 && !server.autoDisconnectOnClosedReadStream && server.delegate === diary)
        server.disconnect()
        _ = try await peer.finish()
    }

    @Test func aSubclassWithItsOwnInitializerCanConnect() async throws {
        let peer = try ScriptedPeer.listening([.expectEnd])
        let diary = Diary()
        let socket = HostSocket(host: "127.0.0.1", delegate: diary)
        socket.delegateQueue = DispatchQueue(label: "delegate")
        #expect(StrictSocket(number: 6).number == 6)
        try socket.connect(toHost: socket.host, onPort: peer.port)
        try await diary.wait(for: "connected to 127.0.0.1")
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func shortVariantsOfAMethodCallTheLongestVariant() async throws {
        let peer = try ScriptedPeer.listening([.send("ab\r\nc"), .expectEnd])
        let diary = Diary()
        let socket = LoggingSocket(delegate: diary, delegateQueue: DispatchQueue(label: "delegate"))
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.readData(toLength: 1, withTimeout: -1, tag: 1)
        socket.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, tag: 2)
        socket.readData(withTimeout: -1, tag: 3)
        socket.write(Data(), withTimeout: -1, tag: 4)
        try await diary.wait(for: "read 3: c")
        socket.disconnect()
        #expect(socket.calls == ["connect", "length 1", "delimiter 2", "any 3", "write 4", "disconnect"])
        _ = try await peer.finish()
    }
}
