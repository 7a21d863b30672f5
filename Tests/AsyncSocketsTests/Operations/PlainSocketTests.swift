import AsyncSockets
import FoundationEssentials
import Glibc
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct PlainSocketTests {
    // MARK: - Connecting and accepting

    @Test(arguments: Link.Delivery.allCases)
    func dataFlowsInBothDirections(_ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        link.client.write(Data("hello\r\n"), withTimeout: .patient, tag: 2)
        #expect(try await link.atServer.readText() == "hello\r\n")
        link.client.readData(toLength: 3, withTimeout: .patient, tag: 3)
        link.server.write(Data("bye"), withTimeout: .patient, tag: 4)
        #expect(try await link.atClient.readText() == "bye")
    }

    @Test func bothEndsReportTheirAddresses() async throws {
        let link = try await Link.make()
        #expect(link.client.isConnected && link.server.isConnected)
        #expect(link.client.connectedPort == link.listener.localPort)
        #expect(link.client.connectedHost == "127.0.0.1")
        #expect(link.client.localAddress == link.server.connectedAddress)
        #expect(link.server.localAddress == link.client.connectedAddress)
        #expect(!link.client.isSecure)
    }

    @Test func aListenerOnLocalhostAcceptsIPv4AndIPv6OnOnePort() async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "localhost", port: 0)
        var clients: [AsyncSocket] = []
        for host in ["127.0.0.1", "::1", "localhost"] {
            let atClient = Recorder()
            let client = AsyncSocket(inlineDelegate: atClient)
            clients.append(client)
            try client.connect(toHost: host, onPort: listener.localPort, withTimeout: .patient)
            try await atClient.connected()
            _ = try await atListener.accepted()
        }
        #expect(clients.count { $0.isConnected } == 3)
    }

    @Test func readsAndWritesMayBeQueuedBeforeTheConnectionIsEstablished() async throws {
        let atListener = Recorder { listener, told in
            guard case .accepted(let socket) = told else { return }
            socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        }
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = AsyncSocket(inlineDelegate: Recorder())
        try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        client.write(Data("early\r\n"), withTimeout: .patient, tag: 0)
        let server = try await atListener.accepted()
        #expect(server.isConnected)
        #expect(try await atListener.readText() == "early\r\n")
    }

    @Test func aRefusedConnectionNamesTheAddressAndTheErrno() async throws {
        // An address that no other test uses, so that the port stays free.
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.78", port: 0)
        let port = listener.localPort
        listener.disconnect()
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toHost: "127.0.0.78", onPort: port, withTimeout: .patient)
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .connectFailed)
        #expect(error.fault == .peer)
        #expect(error.errno == ECONNREFUSED)
        #expect(error.message.contains("127.0.0.78:\(port)"))
        #expect(client.isDisconnected)
    }

    @Test func anUnknownHostIsReportedAsHostNotFound() async throws {
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toHost: "no-such-host.invalid", onPort: 1, withTimeout: .patient)
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .hostNotFound)
        #expect(error.message.contains("no-such-host.invalid"))
    }

    /// The listener's backlog is filled first, so that the kernel does not respond to further SYNs.
    @Test func anUnansweredConnectionAttemptTimesOut() async throws {
        let full = try FullBacklog()
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toHost: "127.0.0.1", onPort: full.port, withTimeout: 0.2)
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .connectTimeout)
    }

    @Test func theDelegateIsToldOfEachStepToAConnection() async throws {
        final class Observer: AsyncSocketDelegate, Sendable {
            let steps = AsyncStream<ConnectionProgress?>.makeStream()

            func socket(_ socket: AsyncSocket, connectionProgressed progress: ConnectionProgress) {
                steps.continuation.yield(progress)
            }

            func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16) { steps.continuation.finish() }
        }
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let observer = Observer()
        let client = AsyncSocket(inlineDelegate: observer)
        try client.connect(toHost: "localhost", onPort: listener.localPort, withTimeout: .patient)
        var steps: [ConnectionProgress] = []
        for await step in observer.steps.stream { if let step { steps.append(step) } }
        guard case .resolved(let addresses) = steps.first, case .connected(let address) = steps.last else {
            Issue.record("\(steps)")
            return
        }
        #expect(addresses.map(\.host) == ["127.0.0.1", "::1"])
        #expect(steps.contains(.trying(address)))
        #expect(address == client.connectedAddress)
        _ = try await atListener.accepted()
    }

    @Test func connectAndAcceptRejectInvalidParameters() throws {
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        #expect(throws: AsyncSocketError.self) { try socket.connect(toHost: "", onPort: 1) }
        #expect(throws: AsyncSocketError.self) { try socket.connect(toHost: "localhost", onPort: 0) }
        #expect(throws: AsyncSocketError.self) { try socket.accept(onInterface: "no address", port: 0) }
        #expect(throws: AsyncSocketError.self) { try AsyncSocket().accept(onPort: 0) }
        #expect(socket.isDisconnected)
    }

    @Test func aSocketInUseCannotConnectAgain() async throws {
        let link = try await Link.make()
        let error = #expect(throws: AsyncSocketError.self) {
            try link.client.connect(toHost: "127.0.0.1", onPort: link.listener.localPort)
        }
        #expect(error?.code == .badConfiguration)
        #expect(error?.fault == .caller)
    }

    @Test func aSocketCanBeUsedAgainAfterItsDisconnect() async throws {
        let link = try await Link.make()
        for _ in 0..<3 {
            link.client.disconnect()
            #expect(try await link.atClient.disconnected() == nil)
            try link.client.connect(toHost: "127.0.0.1", onPort: link.listener.localPort, withTimeout: .patient)
            try await link.atClient.connected()
        }
    }

    @Test(arguments: Link.Delivery.allCases)
    func theEndOfAConnectionIsToldBeforeTheBeginningOfTheNext(_ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        for _ in 0..<200 {
            link.client.disconnect()
            try await eventually("the client is disconnected") { link.client.isDisconnected }
            try link.client.connect(toHost: "127.0.0.1", onPort: link.listener.localPort, withTimeout: .patient)
            guard case .disconnected(nil) = await link.atClient.next() else {
                Issue.record("the next connection overtook the end of the last")
                return
            }
            try await link.atClient.connected()
        }
        withExtendedLifetime(link) {}
    }

    @Test func listeningOnAPortInUseIsASystemError() async throws {
        let link = try await Link.make()
        let recorder = Recorder()
        let second = AsyncSocket(inlineDelegate: recorder)
        let error = #expect(throws: AsyncSocketError.self) {
            try second.accept(onInterface: "127.0.0.1", port: link.listener.localPort)
        }
        #expect(error?.errno == EADDRINUSE)
        #expect(second.isDisconnected)
    }

    // MARK: - Reading

    /// A TLS record is delivered as a whole. A segment may arrive in pieces.
    @Test(arguments: [false, true])
    func queuedReadsCompleteInOrderFromOneSegment(isRecord: Bool) async throws {
        let link = try await Link.make()
        if isRecord { try await link.secure(client: TestCertificates.client(), server: TestCertificates.server()) }
        link.client.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        link.client.readData(toLength: 4, withTimeout: .patient, tag: 2)
        link.client.readData(withTimeout: .patient, maxLength: 2, tag: 3)
        link.client.readData(withTimeout: .patient, tag: 4)
        link.server.write(Data("line\r\nbodyabrest"), withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.readText() == "line\r\n")
        #expect(try await link.atClient.readText() == "body")
        let atMostTwo = try await link.atClient.readText()
        #expect(isRecord ? atMostTwo == "ab" : "ab".hasPrefix(atMostTwo))
        let rest = try await link.atClient.readText()
        #expect(isRecord ? rest == "rest" : "abrest".dropFirst(atMostTwo.count).hasPrefix(rest))
        #expect(!atMostTwo.isEmpty && !rest.isEmpty)
    }

    @Test func tooManyBytesBeforeTheDelimiterCloseTheConnection() async throws {
        let link = try await Link.make()
        link.client.readData(to: .lineEnd, withTimeout: .patient, maxLength: 8, tag: 1)
        link.server.write(Data("123456789"), withTimeout: .patient, tag: 0)
        let error = try #require(try await link.atClient.disconnected())
        #expect(error.code == .readMaxedOut)
        #expect(error.fault == .peer)
    }

    @Test func invalidReadsCloseTheConnectionWithATypedError() async throws {
        for refuse: @Sendable (AsyncSocket) -> Void in [
            { $0.readData(toLength: -1, withTimeout: -1, tag: 0) },
            { $0.readData(to: Data(), withTimeout: -1, tag: 0) },
            { $0.readData(withTimeout: -1, maxLength: 0, tag: 0) },
            { $0.readData(to: .lineEnd, withTimeout: -1, maxLength: 1, tag: 0) },
        ] {
            let link = try await Link.make()
            refuse(link.client)
            #expect(try await link.atClient.disconnected()?.code == .badParameter)
        }
    }

    @Test func aReadOfAFixedLengthReportsProgress() async throws {
        let link = try await Link.make(atClient: Recorder(recordsProgress: true))
        link.client.readData(toLength: 10, withTimeout: .patient, tag: 7)
        link.server.write(Data("1234"), withTimeout: .patient, tag: 0)
        try await link.atClient.readProgress(to: 4, tag: 7)
        link.server.write(Data("567890"), withTimeout: .patient, tag: 0)
        var told = await link.atClient.next()
        while case .readPartial(1...5, tag: 7) = told { told = await link.atClient.next() }
        guard case .read(Data("1234567890"), tag: 7) = told else {
            Issue.record("\(told)")
            return
        }
    }

    @Test func aWriteLargerThanTheKernelBuffersReportsProgress() async throws {
        let link = try await Link.make(atClient: Recorder(recordsProgress: true))
        let count = 32 * 1024 * 1024
        link.client.write(Data(count: count), withTimeout: .patient, tag: 9)
        guard case .wrotePartial(let first, tag: 9) = await link.atClient.next() else {
            Issue.record("no progress")
            return
        }
        #expect(first > 0 && first < count)
        link.server.readData(toLength: count, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readData().count == count)
        withExtendedLifetime(link) {}
    }

    @Test func aReadTimeoutClosesTheConnection() async throws {
        let link = try await Link.make()
        link.client.readData(toLength: 10, withTimeout: 0.05, tag: 1)
        let error = try #require(try await link.atClient.disconnected())
        #expect(error.code == .readTimeout)
    }

    @Test func theDelegateCanGrantAReadMoreTime() async throws {
        let link = try await Link.make(atClient: Recorder(readExtension: 30))
        link.client.readData(toLength: 2, withTimeout: 0, tag: 1)
        link.client.readData(toLength: 2, withTimeout: -1, tag: 2)
        link.server.write(Data("abcd"), withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.readText() == "ab")
        #expect(try await link.atClient.readText() == "cd")
    }

    @Test func aWriteTimesOutIfThePeerDoesNotRead() async throws {
        let link = try await Link.make()
        link.client.write(Data(count: 64 * 1024 * 1024), withTimeout: 0.1, tag: 1)
        let error = try #require(try await link.atClient.disconnected())
        #expect(error.code == .writeTimeout)
    }

    @Test func largeDataArrivesIntact() async throws {
        let link = try await Link.make()
        let data = pattern(5_000_000)
        link.client.write(data, withTimeout: .patient, tag: 1)
        link.server.readData(toLength: data.count, withTimeout: .patient, tag: 2)
        #expect(try await link.atServer.readData() == data)
        #expect(try await link.atClient.wrote() == 1)
    }

    @Test func manySmallWritesArriveInOrder() async throws {
        let link = try await Link.make()
        var expected = ""
        for number in 0..<2_000 {
            link.client.write(Data("\(number),"), withTimeout: .patient, tag: number)
            expected += "\(number),"
        }
        link.server.readData(toLength: expected.utf8.count, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readText() == expected)
        for number in 0..<2_000 { #expect(try await link.atClient.wrote() == number) }
    }

    // MARK: - Ending

    @Test func disconnectIsReportedOnceAndLastOnBothSides() async throws {
        let link = try await Link.make()
        link.client.disconnect()
        #expect(try await link.atClient.disconnected() == nil)
        link.server.readData(withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.disconnected()?.code == .closedByPeer)
        link.client.disconnect()
        link.server.disconnect()
        #expect(link.atClient.unread.isEmpty)
        #expect(link.atServer.unread.isEmpty)
    }

    @Test func bytesBeforeTheFINStayReadable() async throws {
        let link = try await Link.make()
        link.server.write(Data("last words"), withTimeout: .patient, tag: 0)
        link.server.disconnectAfterWriting()
        #expect(try await link.atServer.disconnected() == nil)
        link.client.readData(toLength: 4, withTimeout: .patient, tag: 1)
        #expect(try await link.atClient.readText() == "last")
        link.client.readData(toLength: 6, withTimeout: .patient, tag: 2)
        #expect(try await link.atClient.readText() == " words")
        #expect(try await link.atClient.disconnected()?.code == .closedByPeer)
    }

    @Test func theFINIsNoticedWithoutARead() async throws {
        let link = try await Link.make()
        link.server.disconnect()
        #expect(try await link.atClient.disconnected()?.code == .closedByPeer)
    }

    @Test func disconnectAfterWritingLosesNoData() async throws {
        let link = try await Link.make()
        let data = Data(repeating: 7, count: 3_000_000)
        link.client.write(data, withTimeout: .patient, tag: 1)
        link.client.disconnectAfterWriting()
        link.client.write(Data("too late"), withTimeout: .patient, tag: 2)
        link.server.readData(toLength: data.count, withTimeout: .patient, tag: 3)
        #expect(try await link.atServer.readData() == data)
        link.server.readData(withTimeout: .patient, tag: 4)
        #expect(try await link.atServer.disconnected()?.code == .closedByPeer)
        #expect(try await link.atClient.disconnected() == nil)
    }

    @Test func disconnectAfterReadingWaitsForPendingReads() async throws {
        let link = try await Link.make()
        link.client.readData(toLength: 5, withTimeout: .patient, tag: 1)
        link.client.disconnectAfterReading()
        link.server.write(Data("12345"), withTimeout: .patient, tag: 2)
        #expect(try await link.atClient.readText() == "12345")
        #expect(try await link.atClient.disconnected() == nil)
    }

    @Test func disconnectAfterReadingAndWritingWaitsForBoth() async throws {
        let link = try await Link.make()
        link.client.write(Data("ping"), withTimeout: .patient, tag: 0)
        link.client.readData(toLength: 4, withTimeout: .patient, tag: 1)
        link.client.disconnectAfterReadingAndWriting()
        link.server.readData(toLength: 4, withTimeout: .patient, tag: 2)
        #expect(try await link.atServer.readText() == "ping")
        link.server.write(Data("pong"), withTimeout: .patient, tag: 3)
        #expect(try await link.atClient.readText() == "pong")
        #expect(try await link.atClient.disconnected() == nil)
    }

    @Test func aListenerStopsAndLeavesItsChildrenAlone() async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let atClient = Recorder()
        let client = AsyncSocket(inlineDelegate: atClient)
        try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        try await atClient.connected()
        let server = try await atListener.accepted()
        listener.disconnect()
        #expect(try await atListener.disconnected() == nil)
        #expect(listener.isDisconnected)
        server.write(Data("still here"), withTimeout: .patient, tag: 0)
        client.readData(toLength: 10, withTimeout: .patient, tag: 0)
        #expect(try await atClient.readText() == "still here")
    }

    @Test func aSocketThatNoOneKeepsIsClosed() async throws {
        let link = try await Link.make()
        var second: AsyncSocket? = AsyncSocket(inlineDelegate: Recorder())
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        try second?.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        let server = try await atListener.accepted()
        second = nil
        server.readData(withTimeout: .patient, tag: 0)
        #expect(try await atListener.disconnected()?.code == .closedByPeer)
        #expect(link.client.isConnected)
    }
}
