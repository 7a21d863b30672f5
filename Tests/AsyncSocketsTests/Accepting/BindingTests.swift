import AsyncSocketsTesting
import Dispatch
import FoundationEssentials
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Channel bindings and exported keying material, requested on any thread.
@Suite(.timeLimit(.patient)) struct BindingTests {
    private static let label = "EXPERIMENTAL test"

    private func failure(_ body: () throws(AsyncSocketError) -> [UInt8]) -> AsyncSocketError? {
        do throws(AsyncSocketError) {
            let bytes = try body()
            Issue.record("there are \(bytes.count) bytes")
            return nil
        } catch {
            return error
        }
    }

    // MARK: - Both styles

    @Test(arguments: TLSProtocolVersion.tested, Link.Delivery.allCases)
    func delegatesOfBothSidesHaveTheSame(_ version: TLSProtocolVersion, _ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        try await link.secure(client: TestCertificates.client().only(version), server: TestCertificates.server())
        try expectAgreement(link.client, link.server, version)
    }

    @Test func tasksOfBothSidesHaveTheSame() async throws {
        let pair = try await SocketPair(isSecure: true)
        try expectAgreement(pair.client, pair.server, .tls13)
    }

    private func expectAgreement(_ client: AsyncSocket, _ server: AsyncSocket, _ version: TLSProtocolVersion) throws {
        for kind in TLSChannelBinding.allCases where version == .tls12 || kind != .tlsUnique {
            let binding = try client.channelBinding(kind)
            #expect(try !binding.isEmpty && server.channelBinding(kind) == binding)
        }
        for context: [UInt8]? in [nil, [], [1, 2]] {
            let material = try client.exportKeyingMaterial(label: Self.label, context: context, length: 100)
            #expect(try server.exportKeyingMaterial(label: Self.label, context: context, length: 100) == material)
            #expect(material.count == 100)
        }
    }

    /// Requests them within the callback, while its connection's turn is taken.
    private final class Asker: AsyncSocketDelegate, Sendable {
        let answer = Locked<Result<[UInt8], any Error>?>(nil)
        private let recorder: Recorder

        init(_ recorder: Recorder) {
            self.recorder = recorder
        }

        func socketDidSecure(_ socket: AsyncSocket) {
            let result = Result { try socket.channelBinding(.tlsExporter) as [UInt8] }
            answer.withLock { $0 = result }
            recorder.socketDidSecure(socket)
        }
    }

    @Test(arguments: Link.Delivery.allCases) func aCallbackMayAsk(_ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        let asker = Asker(link.atClient)
        link.client.changeDelegate(to: asker)
        try await link.secure(client: TestCertificates.client(), server: TestCertificates.server())
        let answer = try #require(asker.answer.withLock { $0 }).get()
        #expect(try link.server.channelBinding(.tlsExporter) == answer)
    }

    // MARK: - Concurrency

    /// Threads request them while data is transferred in both directions and while the connection closes.
    @Test(arguments: TLSProtocolVersion.tested) func anyThreadMayAskAtAnyTime(_ version: TLSProtocolVersion) async throws {
        let link = try await Link.make(.inline)
        try await link.secure(client: TestCertificates.client().only(version), server: TestCertificates.server())
        let expected = try link.client.channelBinding(.tlsExporter)
        let block = Data(repeating: 7, count: 1 << 20)
        for (socket, recorder) in [(link.client, link.atClient), (link.server, link.atServer)] {
            socket.write(block, withTimeout: .patient, tag: 0)
            socket.readData(toLength: block.count, withTimeout: .patient, tag: 0)
            withExtendedLifetime(recorder) {}
        }
        await withTaskGroup { group in
            for socket in [link.client, link.server, link.client, link.server] {
                group.addTask {
                    for _ in 0..<500 { #expect((try? socket.channelBinding(.tlsExporter)) == expected) }
                }
            }
        }
        #expect(try await link.atClient.readData() == block)
        #expect(try await link.atServer.readData() == block)
        await withTaskGroup { group in
            for socket in [link.client, link.server] {
                group.addTask {
                    while true {
                        do throws(AsyncSocketError) {
                            #expect(try socket.channelBinding(.tlsExporter) == expected)
                        } catch {
                            return #expect(error.code == .badConfiguration)
                        }
                    }
                }
            }
            link.client.disconnect()
        }
    }

    /// A session store is the program's own code. It is called when a ticket is received.
    private final class AskingStore: TLSSessionStore {
        let socket = Locked<AsyncSocket?>(nil)
        let bindings: AsyncStream<[UInt8]>
        private let continuation: AsyncStream<[UInt8]>.Continuation

        init() {
            (bindings, continuation) = AsyncStream<[UInt8]>.makeStream()
        }

        func store(_ session: TLSResumableSession, for key: TLSSessionStoreKey) {
            let socket = socket.withLock { $0 }
            if let binding = try? socket?.channelBinding(.tlsExporter) { continuation.yield(binding) }
        }

        func take(for key: TLSSessionStoreKey) -> TLSResumableSession? { nil }
    }

    @Test func aStoreOfSessionsMayAsk() async throws {
        let store = AskingStore()
        let link = try await Link.make()
        store.socket.withLock { $0 = link.client }
        var (client, server) = (try TestCertificates.client(), try TestCertificates.server())
        client.resumption = .store(store)
        server.sessionTickets = .issued(1)
        try await link.secure(client: client, server: server)
        link.server.write(Data("x"), withTimeout: .patient, tag: 0)
        link.client.readData(toLength: 1, withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.readText() == "x")
        let binding = await store.bindings.first { _ in true }
        #expect(try binding == link.server.channelBinding(.tlsExporter))
    }

    // MARK: - Errors

    @Test func onlyASecureConnectionHasThem() async throws {
        let unused = AsyncSocket()
        let link = try await Link.make()
        for socket in [unused, link.client] {
            let errors = [
                failure { () throws(AsyncSocketError) in try socket.channelBinding(.tlsExporter) },
                failure { () throws(AsyncSocketError) in
                    try socket.exportKeyingMaterial(label: Self.label, context: nil, length: 32)
                },
            ]
            #expect(errors.map { $0?.code } == [.badConfiguration, .badConfiguration])
            #expect(errors.map { $0?.operation } == [.channelBinding, .exportKeyingMaterial])
        }
        try await link.secure(client: TestCertificates.client(), server: TestCertificates.server())
        link.server.disconnect()
        #expect(try await link.atClient.disconnected()?.code == .closedByPeer)
        let error = failure { () throws(AsyncSocketError) in try link.client.channelBinding(.tlsServerEndPoint) }
        #expect(error?.code == .badConfiguration && error?.message == "the connection is closed")
    }

    @Test func argumentsAndKindsThatCannotBeAreTyped() async throws {
        let pair = try await SocketPair(isSecure: true)
        let socket = pair.client
        for (label, length) in [("", 32), ("x", 0), ("x", 255 * 48 + 1)] {
            let error = failure { () throws(AsyncSocketError) in
                try socket.exportKeyingMaterial(label: label, context: nil, length: length)
            }
            #expect(error?.code == .badParameter && error?.fault == .caller)
        }
        let error = failure { () throws(AsyncSocketError) in try socket.channelBinding(.tlsUnique) }
        #expect(error?.code == .tls && error?.tls?.code == .bindingUnavailable)
        #expect(socket.isConnected)
    }
}
