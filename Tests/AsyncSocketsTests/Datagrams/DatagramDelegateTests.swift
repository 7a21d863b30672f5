import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// UDP with a delegate, on a queue and inline.
@Suite(.timeLimit(.patient)) struct DatagramDelegateTests {
    enum Place: CaseIterable, Sendable { case inline, delegateQueue, socketQueue }

    private func socket(_ place: Place, _ recorder: DatagramRecorder) -> AsyncUDPSocket {
        switch place {
        case .inline: AsyncUDPSocket(inlineDelegate: recorder)
        case .delegateQueue: AsyncUDPSocket(delegate: recorder, delegateQueue: DispatchQueue(label: "delegate"))
        case .socketQueue: AsyncUDPSocket(inlineDelegate: recorder, socketQueue: DispatchQueue(label: "socket"))
        }
    }

    @Test(arguments: Place.allCases) func datagramsGoBothWays(_ place: Place) async throws {
        let (client, server) = (DatagramRecorder(), DatagramRecorder())
        let (clientSocket, serverSocket) = (socket(place, client), try AsyncUDPSocket.bound("127.0.0.1", socket(place, server)))
        try serverSocket.beginReceiving()
        try clientSocket.connect(toHost: "127.0.0.1", onPort: serverSocket.localPort)
        for tag in 0..<100 { clientSocket.send(Data("\(tag)".utf8), withTimeout: -1, tag: tag) }
        try clientSocket.beginReceiving()
        #expect(try await client.connected() == serverSocket.address)
        for tag in 0..<100 {
            let datagram = try await server.received()
            #expect(datagram.data == Data("\(tag)".utf8))
            serverSocket.send(datagram.data, inReplyTo: datagram, withTimeout: -1, tag: tag)
        }
        for tag in 0..<100 { #expect(try await client.received().data == Data("\(tag)".utf8)) }
        clientSocket.disconnectAfterSending()
        #expect(try await client.closed() == nil)
        let tags = client.history.compactMap { if case .sent(let tag) = $0 { tag } else { nil } }
        #expect(tags == Array(0..<100))
        serverSocket.disconnect()
        #expect(try await server.closed() == nil)
    }

    @Test func receivingOnceDeliversOneAndPausingNone() async throws {
        let recorder = DatagramRecorder()
        let socket = try AsyncUDPSocket.bound("127.0.0.1", AsyncUDPSocket(inlineDelegate: recorder))
        let sender = try AsyncUDPSocket.bound()
        for number in UInt8(0)..<10 { try await sender.send(Data([number]), to: socket.address) }
        for number in UInt8(0)..<3 {
            try socket.receiveOnce()
            #expect(try await recorder.received().data == Data([number]))
        }
        // The delegate receives only what it has requested.
        #expect(try await socket.receive().data == Data([3]))
        try socket.beginReceiving()
        for number in UInt8(4)..<10 { #expect(try await recorder.received().data == Data([number])) }
        socket.pauseReceiving()
        try await sender.send(Data([10]), to: socket.address)
        // A task's receive has priority, and shows that the delegate has not received the datagram.
        #expect(try await socket.receive().data == Data([10]))
        socket.disconnect()
        _ = try await recorder.closed()
        #expect(recorder.history.filter { if case .received = $0 { true } else { false } }.count == 9)
    }

    @Test func aSocketThatIsNotInUseRefusesToReceive() throws {
        let error = #expect(throws: AsyncSocketError.self) { try AsyncUDPSocket().beginReceiving() }
        #expect(error?.code == .badConfiguration)
    }

    @Test func theFirstSendBindsTheSocket() async throws {
        let recorder = DatagramRecorder()
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        let other = try AsyncUDPSocket.bound()
        #expect(!socket.isOpen && socket.localPort == 0)
        socket.send(Data([1]), toAddress: try other.address, withTimeout: -1, tag: 5)
        #expect(socket.isOpen && socket.localPort != 0 && socket.isIPv4)
        #expect(try await recorder.sent() == 5)
        let datagram = try await other.receive()
        #expect(datagram.sender.port == socket.localPort)
        try socket.receiveOnce()
        try await other.send(Data([2]), inReplyTo: datagram)
        #expect(try await recorder.received().data == Data([2]))
    }

    // MARK: - The end

    @Test func everySendIsAnsweredAndTheEndComesOnceAndLast() async throws {
        let (recorder, mayAnswer) = (DatagramRecorder(), DispatchSemaphore(value: 0))
        defer { mayAnswer.signal() }
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        // No lookup completes before the end of the socket, however late that is.
        socket.resolver = Resolver(concurrency: 1) {
            mayAnswer.wait()
            mayAnswer.signal()
            return .failure(ResolveError($0, code: EAI_NONAME))
        }
        for tag in 0..<20 { socket.send(Data([1]), toHost: "some.example", port: 9, withTimeout: -1, tag: tag) }
        socket.disconnect()
        socket.disconnect()
        socket.send(Data([1]), toHost: "127.0.0.1", port: 9, withTimeout: -1, tag: 20)
        #expect(try await recorder.closed() == nil)
        let told = recorder.history
        let tags = told.compactMap { if case .notSent(let tag, let error) = $0, error.code == .closed { tag } else { nil } }
        #expect(tags.prefix(20) == Array(0..<20)[...])
        #expect(told.filter { if case .closed = $0 { true } else { false } }.count == 1)
    }

    @Test func theLastReferenceClosesTheSocket() async throws {
        let recorder = DatagramRecorder()
        var socket: AsyncUDPSocket? = try AsyncUDPSocket.bound("127.0.0.1", AsyncUDPSocket(inlineDelegate: recorder))
        let address = try #require(socket).address
        try socket?.beginReceiving()
        socket = nil
        // The port is released soon afterwards.
        try await eventually("the port is free") { (try? AsyncUDPSocket().bind(toAddress: address)) != nil }
        #expect(recorder.history.isEmpty)
    }
}
