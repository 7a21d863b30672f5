import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Pre-shared keys that a function looks up while the handshake is paused, as in a database of devices.
@Suite(.timeLimit(.patient)) struct DatagramKeyTests {
    private static func key(_ identity: String, _ byte: UInt8 = 7) throws -> TLSPreSharedKey {
        try TLSPreSharedKey(identity: identity, key: [UInt8](repeating: byte, count: 16))
    }

    private static func listener(
        _ keys: TLSPreSharedKeys, timeout: Duration = .patient
    ) throws -> (DatagramListener, Task<Void, any Error>) {
        var settings = TLSSettings.server(preSharedKeys: keys)
        settings.policy = .constrainedDevices
        settings.handshakeTimeout = timeout
        let listener = try DatagramListener(address: .loopback(), dtls: settings)
        return (listener, listener.echoing())
    }

    private static func visit(
        _ listener: DatagramListener, _ key: TLSPreSharedKey, isConstrained: Bool = false, size: Int? = nil,
        timeout: Duration = .patient
    ) async throws -> String {
        let socket = AsyncUDPSocket()
        defer { socket.disconnect() }
        socket.firstRetransmission = .milliseconds(50)
        socket.maximumDatagramSize = size
        var settings = TLSSettings.client(serverName: "hub.example.org", preSharedKey: key)
        settings.handshakeTimeout = timeout
        if isConstrained { settings.policy = .constrainedDevices }
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        try await socket.startDTLS(settings: settings)
        return try await socket.ask("hello")
    }

    /// With a size of 256 bytes, the flight with the identity arrives in several datagrams.
    @Test(arguments: [nil, 256]) func eachDeviceHasItsKey(size: Int?) async throws {
        let asked = Locked<[String]>([])
        let (listener, serving) = try Self.listener(
            TLSPreSharedKeys { identity in
                let name = String(decoding: identity, as: UTF8.self)
                asked.withLock { $0.append(name) }
                await Task.yield()
                return try Self.key(name, UInt8(name.utf8.count))
            })
        for name in ["a", "sensor 17", String(repeating: "x", count: 128)] {
            let key = try Self.key(name, UInt8(name.utf8.count))
            #expect(try await Self.visit(listener, key, size: size) == "hello")
        }
        #expect(asked.withLock { $0 } == ["a", "sensor 17", String(repeating: "x", count: 128)])
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// The client's retransmissions are held back too, and other clients are served in the meantime.
    @Test func aSlowLookupDelaysOnlyItsClient() async throws {
        let (slow, release) = AsyncStream.makeStream(of: Void.self)
        let asked = Locked<[String]>([])
        let (listener, serving) = try Self.listener(
            TLSPreSharedKeys { identity in
                let name = String(decoding: identity, as: UTF8.self)
                asked.withLock { $0.append(name) }
                if name == "slow" { for await _ in slow { break } }
                return try Self.key(name)
            })
        async let late = Self.visit(listener, Self.key("slow"))
        try await eventually("the function is waiting") { asked.withLock { $0 } == ["slow"] }
        for number in 0..<3 { #expect(try await Self.visit(listener, Self.key("quick \(number)")) == "hello") }
        release.yield()
        #expect(try await late == "hello")
        #expect(asked.withLock { $0 } == ["slow", "quick 0", "quick 1", "quick 2"])
        await listener.close(timeout: .zero)
        try await serving.value
    }

    enum Fault: CaseIterable, Sendable { case unknown, wrongKey, otherIdentity, otherHash, fails }

    /// The client cannot distinguish any of these from a wrong key.
    @Test(arguments: Fault.allCases) func aClientWithoutItsKeyIsNotServed(_ fault: Fault) async throws {
        let (listener, serving) = try Self.listener(
            TLSPreSharedKeys { identity in
                switch fault {
                case .unknown: return nil
                case .wrongKey: return try Self.key("sensor", 8)
                case .otherIdentity: return try Self.key("another")
                case .otherHash:
                    return try TLSPreSharedKey(identity: "sensor", key: [UInt8](repeating: 7, count: 16), hash: .sha384)
                case .fails: throw CocoaError(.fileNoSuchFile)
                }
            }, timeout: .seconds(1))
        let error = await #expect(throws: AsyncSocketError.self) {
            try await Self.visit(listener, Self.key("sensor"), timeout: .milliseconds(1_500))
        }
        #expect(error?.code == .handshakeTimeout || error?.code == .tls)
        try await eventually("its place is free") { listener.hub.handshakeCount == 0 && listener.snapshot.openCount == 0 }
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// A listener that closes does not wait for the function, and cancels its task.
    @Test func aLookupThatHangsIsCancelledWithItsPeer() async throws {
        let (isAsked, isCancelled) = (Locked(false), Locked(false))
        let (listener, serving) = try Self.listener(
            TLSPreSharedKeys { _ in
                isAsked.withLock { $0 = true }
                await withTaskCancellationHandler {
                    _ = try? await eventually("it is cancelled") { isCancelled.withLock { $0 } }
                } onCancel: {
                    isCancelled.withLock { $0 = true }
                }
                return nil
            })
        let visiting = Task { try await Self.visit(listener, Self.key("sensor")) }
        try await eventually("the function is waiting") { isAsked.withLock { $0 } }
        await listener.close(timeout: .zero)
        try await serving.value
        try await eventually("it is cancelled") { isCancelled.withLock { $0 } }
        visiting.cancel()
        await #expect(throws: (any Error).self) { try await visiting.value }
    }

    @Test func streamsRequireAnotherWay() throws {
        let settings = TLSSettings.server(preSharedKeys: TLSPreSharedKeys { _ async in nil })
        let error = #expect(throws: AsyncSocketError.self) { try SocketListener(port: 0, interface: "127.0.0.1", tls: settings) }
        #expect(error?.tls?.code == .invalidSettings && error?.tls?.message.contains("use TLSServerNames") == true)
    }
}
