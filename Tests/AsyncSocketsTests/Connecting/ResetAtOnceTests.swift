import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

/// A peer that sends a few bytes and resets the connection immediately. The reset may arrive between any two
/// system calls of the client, and each attempt to connect must still complete.
@Suite(.timeLimit(.patient)) struct ResetAtOnceTests {
    private static let rounds = 2000

    /// Accepts `rounds` connections, sends a line on each, and resets it.
    private func serve(_ listener: RawSocket, afterRequest: String? = nil, sending text: String) -> Task<Void, any Error> {
        Task.detached(executorPreference: TestThreads()) {
            for _ in 0..<Self.rounds {
                let accepted = try listener.accepted()
                if let afterRequest { _ = try accepted.receive(through: afterRequest) }
                try accepted.send(text)
                accepted.resetWhenClosed()
            }
        }
    }

    @Test func aTaskConnectsOrGetsTheReset() async throws {
        let listener = try RawSocket.listening(waitLimit: .patient)
        let address = try listener.localAddress
        let peer = serve(listener, sending: "hello\n")
        for _ in 0..<Self.rounds {
            let socket = AsyncSocket()
            do {
                try await socket.connect(to: address, timeout: .patient)
                #expect(socket.connectedAddress == address)
                #expect(try await socket.readLine(timeout: .patient) == "hello")
                let error = await #expect(throws: AsyncSocketError.self) { try await socket.readLine(timeout: .patient) }
                #expect(error?.code == .connectionReset)
            } catch let error as AsyncSocketError {
                #expect(error.code == .connectionReset, "\(error)")
            }
        }
        try await peer.value
    }

    @Test func aDelegateIsConnectedOrDisconnected() async throws {
        let listener = try RawSocket.listening(waitLimit: .patient)
        let address = try listener.localAddress
        let peer = serve(listener, sending: "hello\n")
        for _ in 0..<Self.rounds {
            let recorder = Recorder()
            let socket = AsyncSocket(inlineDelegate: recorder)
            try socket.connect(toAddress: address, withTimeout: .patient)
            socket.readData(to: Data("\n".utf8), withTimeout: .patient, tag: 1)
            var told = await recorder.next()
            if case .connected(_, let port) = told {
                #expect(port == address.port)
                told = await recorder.next()
                if case .read(let data, _) = told {
                    #expect(data == Data("hello\n".utf8))
                    socket.readData(withTimeout: .patient, tag: 2)
                    told = await recorder.next()
                }
            }
            guard case .disconnected(let error) = told else { throw Unexpected(description: "\(told)") }
            #expect(error?.code == .connectionReset)
            #expect(socket.isDisconnected)
        }
        try await peer.value
    }

    @Test func aTaskConnectsThroughAProxyOrGetsTheReset() async throws {
        let listener = try RawSocket.listening(waitLimit: .patient)
        let address = try listener.localAddress
        let peer = serve(listener, afterRequest: "\r\n\r\n", sending: "HTTP/1.1 200 OK\r\n\r\nhello\n")
        for _ in 0..<Self.rounds {
            let socket = AsyncSocket()
            socket.proxy = .http(host: "127.0.0.1", port: try #require(address.port))
            do {
                try await socket.connect(to: "target.test", port: 25, timeout: .patient)
                #expect(socket.connectedAddress == address)
                #expect(try await socket.readLine(timeout: .patient) == "hello")
                let error = await #expect(throws: AsyncSocketError.self) { try await socket.readLine(timeout: .patient) }
                #expect(error?.code == .connectionReset)
            } catch let error as AsyncSocketError {
                #expect([.connectionReset, .proxyFailed].contains(error.code), "\(error)")
            }
        }
        try await peer.value
    }
}
