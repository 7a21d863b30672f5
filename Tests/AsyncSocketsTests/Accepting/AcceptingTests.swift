import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import Glibc
import Logging
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct AcceptingTests {
    /// Other connections arrive during the callback for the first one, which then stops the listener.
    @Test(arguments: [Link.Delivery.inline, .delegateQueue])
    func nothingIsAcceptedAfterADisconnectFromWithinTheCallback(_ delivery: Link.Delivery) async throws {
        let othersHaveCome = DispatchSemaphore(value: 0)
        let atListener = Recorder { listener, told in
            guard case .accepted = told else { return }
            _ = othersHaveCome.wait(timeout: .now() + .patient)
            listener.disconnect()
        }
        let listener = AsyncSocket(atListener, calledOn: delivery.delegateQueue)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let address = try #require(listener.localAddress)
        let clients = try (0..<20).map { _ in try RawSocket.connected(to: address) }
        othersHaveCome.signal()
        let first = try await atListener.accepted()
        guard case .disconnected(nil) = await atListener.next() else {
            Issue.record("another connection was told")
            return
        }
        #expect(first.isConnected)
        for client in clients.dropFirst() { #expect(try client.receive(atLeast: 1) == "") }
        #expect(try !#require(clients.first).hasInput)
        let refusal = #expect(throws: LoopbackError.self) { try RawSocket.connected(to: address) }
        #expect(refusal?.errorNumber == ECONNREFUSED)
        withExtendedLifetime((atListener, listener)) {}
    }

    // MARK: - Addresses and families

    /// Whether a socket listens on that port of every interface, according to the kernel's table `tcp` or
    /// `tcp6`. A test connection might reach another test.
    private static func listensEverywhere(onPort port: UInt16, _ table: String) throws -> Bool {
        // `Data(contentsOf:)` reads only the first page of such a file.
        let entries = try #require(try FileHandle(forReadingFrom: URL(filePath: "/proc/net/\(table)")).readToEnd())
        let text = String(decoding: entries, as: UTF8.self)
        let digits = String(repeating: "0", count: 4) + String(port, radix: 16, uppercase: true)
        let name = String(repeating: "0", count: table == "tcp" ? 8 : 32) + ":" + digits.suffix(4)
        return text.split(separator: "\n").contains { line in
            let fields = line.split(separator: " ")
            return fields.count > 3 && fields[1] == name && fields[3] == "0A"
        }
    }

    @Test func aListenerDoesNotListenOnADisabledFamily() async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        listener.isIPv4Enabled = false
        try listener.accept(onPort: 0)
        #expect(listener.localAddress?.family == .ipv6)
        let port = listener.localPort
        let client = try RawSocket.connected(to: .loopback("::1", port: port))
        _ = try await recorder.accepted()
        #expect(try Self.listensEverywhere(onPort: port, "tcp6"))
        #expect(try !Self.listensEverywhere(onPort: port, "tcp"))
        withExtendedLifetime((client, recorder)) {}
    }

    @Test func withBothFamiliesSwitchedOffThereIsNothingToListenOn() throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        listener.isIPv4Enabled = false
        listener.isIPv6Enabled = false
        for accept: @Sendable (AsyncSocket) throws -> Void in [
            { try $0.accept(onPort: 0) }, { try $0.accept(onInterface: "127.0.0.1", port: 0) },
            { try $0.accept(onInterface: "::1", port: 0) },
        ] {
            let error = #expect(throws: AsyncSocketError.self) { try accept(listener) }
            #expect(error?.code == .badConfiguration)
        }
        #expect(listener.isDisconnected)
    }

    @Test(arguments: ["127.0.0.1", "::1"])
    func aListenerAcceptsOnAGivenAddress(_ host: String) async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        try listener.accept(onAddress: .loopback(host))
        #expect(listener.localHost == host)
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        #expect(try await recorder.accepted().connectedHost == host)
        withExtendedLifetime(client) {}
    }

    /// The second address is in use. The first is released, and no disconnect event is delivered.
    @Test func anAcceptThatThrewLeavesNothingBehind() async throws {
        let holder = AsyncSocket(inlineDelegate: Recorder())
        let atHolder = Recorder()
        holder.changeDelegate(to: atHolder)
        try holder.accept(onAddress: try #require(SocketEndpoint(literal: "::", port: 0)))
        let port = holder.localPort
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        let error = #expect(throws: AsyncSocketError.self) { try listener.accept(onPort: port) }
        #expect(error?.errno == EADDRINUSE)
        #expect(try Self.listensEverywhere(onPort: port, "tcp6"))
        #expect(try !Self.listensEverywhere(onPort: port, "tcp"))
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        _ = try await recorder.accepted()
        #expect(!listener.isDisconnected)
        #expect(recorder.unread.isEmpty)
        withExtendedLifetime((client, holder, atHolder)) {}
    }

    // MARK: - Accepted sockets

    @Test func anAcceptedSocketHasTheListenersSettings() async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        listener.isIPv4PreferredOverIPv6 = false
        listener.isIPv6Enabled = false
        listener.alternateAddressDelay = .seconds(1.25)
        listener.maximumConnections = 12
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        let child = try await recorder.accepted()
        #expect(!child.isIPv4PreferredOverIPv6)
        #expect(!child.isIPv6Enabled && child.isIPv4Enabled)
        #expect(child.alternateAddressDelay == .seconds(1.25))
        #expect(child.maximumConnections == 12)
        // The listener's delegate gets the end.
        child.disconnect()
        #expect(try await recorder.disconnected() == nil)
        withExtendedLifetime(client) {}
    }

    @Test func anAcceptedSocketUsesTheSocketQueueFromTheDelegate() async throws {
        final class Giver: AsyncSocketDelegate, Sendable {
            static let key = DispatchSpecificKey<String>()
            let asked = AsyncStream<SocketEndpoint>.makeStream()
            let told = AsyncStream<String>.makeStream()
            let children = Locked<[AsyncSocket]>([])
            let queue = DispatchQueue(label: "given")

            func newSocketQueueForConnection(fromAddress address: SocketEndpoint, on socket: AsyncSocket) -> DispatchQueue? {
                asked.continuation.yield(address)
                return queue
            }

            func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
                children.withLock { $0.append(newSocket) }
                newSocket.readData(toLength: 1, withTimeout: .patient, tag: 0)
                newSocket.perform { _ in self.note() }
            }

            func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) { note() }

            private func note() { told.continuation.yield(DispatchQueue.getSpecific(key: Self.key) ?? "elsewhere") }
        }
        let giver = Giver()
        giver.queue.setSpecific(key: Giver.key, value: "given")
        let listener = AsyncSocket(inlineDelegate: giver)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        try client.send("x")
        var told = giver.told.stream.makeAsyncIterator()
        #expect(await told.next() == "given")
        #expect(await told.next() == "given")
        var asked = giver.asked.stream.makeAsyncIterator()
        #expect(await asked.next() == giver.children.withLock { $0.first }?.connectedAddress)
        withExtendedLifetime((giver, client)) {}
    }

    /// The most common mistake: the new socket is not retained.
    @Test(.unmodifiedKernel, arguments: [Link.Delivery.inline, .delegateQueue])
    func anUnretainedAcceptedSocketIsClosedWithOneWarning(_ delivery: Link.Delivery) async throws {
        final class Careless: AsyncSocketDelegate, Sendable {
            func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
                newSocket.readData(withTimeout: .patient, tag: 0)
            }
        }
        let careless = Careless()
        let listener = AsyncSocket(careless, calledOn: delivery.delegateQueue)
        listener.logger = LogRecorder.logger(of: "accepting")
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let address = try #require(listener.localAddress)
        for _ in 0..<3 {
            let client = try RawSocket.connected(to: address)
            #expect(try client.receive(atLeast: 1) == "")
        }
        let lines = LogRecorder.lines(about: address)
        #expect(lines.count == 3)
        #expect(lines.map(\.level) == [.warning, .debug, .debug])
        #expect(lines.first?.message.contains("store it in socket(_:didAcceptNewSocket:)") == true)
        withExtendedLifetime((careless, listener)) {}
    }

    @Test func whatIsKeptOrEndedOnPurposeIsNotLogged() async throws {
        final class Choosy: AsyncSocketDelegate, Sendable {
            let kept = Locked<[AsyncSocket]>([])

            func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
                let isFirst = kept.withLock { kept in
                    if kept.isEmpty { kept.append(newSocket) }
                    return kept.count == 1 && kept[0] === newSocket
                }
                if isFirst { newSocket.write(Data("welcome"), withTimeout: .patient, tag: 0) } else { newSocket.disconnect() }
            }
        }
        let choosy = Choosy()
        let listener = AsyncSocket(inlineDelegate: choosy)
        listener.logger = LogRecorder.logger(of: "accepting")
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let address = try #require(listener.localAddress)
        let first = try RawSocket.connected(to: address)
        #expect(try first.receive(atLeast: 7) == "welcome")
        let second = try RawSocket.connected(to: address)
        #expect(try second.receive(atLeast: 1) == "")
        #expect(LogRecorder.lines(about: address).isEmpty)
        withExtendedLifetime((choosy, listener)) {}
    }

    // MARK: - Without a delegate

    /// The original leaked the descriptor, so the peer waited forever.
    @Test(.unmodifiedKernel, arguments: [Link.Delivery.inline, .delegateQueue, .socketQueue])
    func d16WithoutADelegateAnAcceptedConnectionIsClosed(_ delivery: Link.Delivery) async throws {
        var recorder = Recorder()
        let listener = AsyncSocket(recorder, calledOn: delivery.delegateQueue, socketQueue: delivery.socketQueue)
        listener.logger = LogRecorder.logger(of: "accepting")
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let address = try #require(listener.localAddress)
        recorder = Recorder()
        for _ in 0..<3 {
            let client = try RawSocket.connected(to: address)
            #expect(try client.receive(atLeast: 1) == "")
        }
        #expect(LogRecorder.lines(about: address).map(\.level) == [.warning, .debug, .debug])
        withExtendedLifetime(listener) {}
    }

    /// The listener is released while connections wait for delivery on the delegate queue. They are closed.
    @Test func d16WhatIsOnItsWayWhenTheListenerGoesIsClosed() async throws {
        let queue = DispatchQueue(label: "delegate")
        let arrived = DispatchSemaphore(value: 0)
        let recorder = Recorder()
        var listener: AsyncSocket? = AsyncSocket(delegate: recorder, delegateQueue: queue)
        try listener?.accept(onInterface: "127.0.0.1", port: 0)
        let address = try #require(listener?.localAddress)
        queue.async { arrived.wait() }
        let clients = try (0..<5).map { _ in try RawSocket.connected(to: address) }
        listener = nil
        arrived.signal()
        for client in clients { #expect(try client.receive(atLeast: 1) == "") }
        #expect(recorder.unread.isEmpty)
    }

    // MARK: - The limit

    @Test(arguments: [Link.Delivery.inline, .delegateQueue])
    func connectionsOverTheLimitWaitUntilAnotherConnectionCloses(_ delivery: Link.Delivery) async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(recorder, calledOn: delivery.delegateQueue)
        let log = "a limit of 2, \(delivery)"
        listener.logger = LogRecorder.logger(of: log)
        listener.maximumConnections = 2
        try listener.accept(onInterface: "localhost", port: 0)
        let address = try #require(listener.localAddress)
        let clients = try (0..<20).map { _ in try RawSocket.sending(to: address) }
        var open = [try await recorder.accepted(), try await recorder.accepted()]
        for _ in 2..<clients.count {
            #expect(recorder.unread.isEmpty)
            open.removeFirst().disconnect()
            var told: [Told] = [await recorder.next(), await recorder.next()]
            if case .accepted = told[0] { told.swapAt(0, 1) }
            guard case .disconnected(nil) = told[0], case .accepted(let next) = told[1] else {
                Issue.record("\(told)")
                return
            }
            open.append(next)
        }
        #expect(recorder.unread.isEmpty)
        // A listener without free descriptors also warns.
        #expect(LogRecorder.warnings(of: log).compactMap { $0.metadata["limit"] } == ["2"])
        withExtendedLifetime((clients, listener)) {}
    }

    @Test func theLimitMayChangeWhileConnectionsWait() async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        listener.logger = LogRecorder.logger(of: "a limit that changes")
        listener.maximumConnections = 1
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let address = try #require(listener.localAddress)
        let clients = try (0..<4).map { _ in try RawSocket.sending(to: address) }
        var open = [try await recorder.accepted()]
        listener.maximumConnections = .max
        for _ in 1..<clients.count { open.append(try await recorder.accepted()) }
        #expect(open.count { $0.isConnected } == 4)
        listener.disconnect()
        withExtendedLifetime(clients) {}
    }
}

extension RawSocket {
    /// Returns a client that has sent data. At the limit, a silent connection would be replaced after a
    /// second.
    static func sending(to address: SocketEndpoint) throws -> RawSocket {
        let client = try RawSocket.connected(to: address)
        try client.send("hello")
        return client
    }
}
