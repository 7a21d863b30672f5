import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Reads that leave their bytes unread.
@Suite(.timeLimit(.patient)) struct PeekTests {
    @Test(arguments: [false, true])
    func theBytesStayForEveryLaterRead(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("EHLO you\r\nQUIT", inPiecesOf: 1)], isSecure: isSecure)
        for count in [1, 4, 1, 14] {
            #expect(try await socket.peek(exactly: count) == Data("EHLO you\r\nQUIT".utf8.prefix(count)))
        }
        #expect(try await socket.readLine() == "EHLO you")
        #expect(try await socket.peek(exactly: 4) == Data("QUIT"))
        #expect(try await socket.read(exactly: 4) == Data("QUIT"))
    }

    @Test(arguments: [false, true])
    func anEndBeforeTheLengthIsAnErrorAndTheBytesAreReadable(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("EH")] + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        let error = await #expect(throws: AsyncSocketError.self) { try await socket.peek(exactly: 3) }
        #expect(error?.code == .closedByPeer)
        #expect(try await socket.readToEnd() == Data("EH"))
    }

    @Test func aPeekThatIsCancelledOrLateTakesNothing() async throws {
        let maySend = try TestSignal()
        let (socket, _) = try await connectedSocket([.send("EH"), .wait(for: maySend), .send("LO")])
        let late = await #expect(throws: AsyncSocketError.self) {
            try await socket.peek(exactly: 4, timeout: .milliseconds(10))
        }
        #expect(late?.code == .readTimeout)
        let peek = Task { try await socket.peek(exactly: 4) }
        try await socket.readWaits()
        peek.cancel()
        #expect(await peek.outcome == .cancelled)
        maySend.fire()
        #expect(try await socket.read(exactly: 4) == Data("EHLO"))
    }

    @Test func theLengthHasLimits() async throws {
        let bytes = pattern(100_000)
        let (socket, _) = try await connectedSocket([.send([UInt8](bytes))])
        for count in [-1, 0, 65_537] {
            let error = await #expect(throws: AsyncSocketError.self) { try await socket.peek(exactly: count) }
            #expect(error?.code == .badParameter)
            #expect(error?.message == "the length of a peek must be from 1 to 65536 bytes, but is \(count)")
        }
        #expect(try await socket.peek(exactly: 65_536) == bytes.prefix(65_536))
        #expect(try await socket.read(exactly: 100_000) == bytes)
    }

    /// The first byte of a TLS record is 22 (RFC 8446, section 5.1).
    @Test func onePortServesPlaintextAndTLS() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let settings = try TestCertificates.server()
        let body: @Sendable (AsyncSocket) async throws -> Void = { socket in
            if try await socket.peek(exactly: 1) == Data([22]) { try await socket.startTLS(settings: settings) }
            try await socket.echo()
        }
        try await serving(listener, body) { _ in
            for tls in [nil, try TLSSettings.ofTests()] {
                let client = AsyncSocket()
                try await client.connect(to: "127.0.0.1", port: listener.localPort, tls: tls)
                try await client.writeLine("hello")
                #expect(try await client.readLine() == "hello")
                #expect(client.isSecure == (tls != nil))
            }
        }
    }

    // MARK: - Delegates

    @Test(arguments: Link.Delivery.allCases)
    func aDelegateSeesTheBytesAndReadsThemAgain(_ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        link.server.peekData(toLength: 3, withTimeout: .patient, tag: 1)
        link.server.readData(toLength: 5, withTimeout: .patient, tag: 2)
        link.client.write(Data("hello"), withTimeout: .patient, tag: 3)
        #expect(try await link.atServer.readText() == "hel")
        #expect(try await link.atServer.readText() == "hello")
    }

    @Test(arguments: [0, 65_537]) func aDelegatesBadLengthEndsTheConnection(length: Int) async throws {
        let link = try await Link.make(.inline)
        link.server.peekData(toLength: length)
        let error = try await link.atServer.disconnected()
        #expect(error?.code == .badParameter)
        #expect(error?.message.hasSuffix("but is \(length)") == true)
    }
}
