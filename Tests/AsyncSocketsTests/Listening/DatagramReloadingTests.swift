import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// New settings of a `DatagramListener`, as in `ReloadingTests`.
@Suite(.timeLimit(.patient)) struct DatagramReloadingTests {
    private static func client(of listener: DatagramListener) async throws -> AsyncUDPSocket {
        var settings = try TestCertificates.client()
        settings.resumption = .none
        let socket = AsyncUDPSocket()
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        try await socket.startDTLS(settings: settings)
        return socket
    }

    private static func names(_ socket: AsyncUDPSocket) -> [String]? { socket.tlsSession?.peerCertificates.first?.dnsNames }

    @Test func replacedSettingsApplyToTheNextPeer() async throws {
        let listener = try DatagramListener(address: .loopback(), dtls: TestCertificates.server())
        let serving = listener.echoing()
        let first = try await Self.client(of: listener)
        #expect(Self.names(first) == ["localhost"])
        let error = #expect(throws: AsyncSocketError.self) { try listener.replaceTLS(TestCertificates.server().only(.tls13)) }
        #expect(error?.code == .tls)
        #expect(Self.names(try await Self.client(of: listener)) == ["localhost"])
        try listener.replaceTLS(TestCertificates.server(for: ["localhost", "next.test"]))
        #expect(Self.names(try await Self.client(of: listener)) == ["localhost", "next.test"])
        // The existing peer keeps its old settings.
        #expect(try await first.ask("hello") == "hello")
        await listener.close(timeout: .zero)
        try await serving.value
    }

    @Test func settingsThatNothingCanUseAreRefused() throws {
        let plain = try DatagramListener(address: .loopback())
        let missing = #expect(throws: AsyncSocketError.self) { try plain.replaceTLS(TestCertificates.server()) }
        #expect(missing?.code == .badConfiguration && missing?.message.contains("dtls parameter") == true)
        let secure = try DatagramListener(address: .loopback(), dtls: TestCertificates.server())
        var settings = try TestCertificates.mutual().server
        settings.trustEvaluation = .delegate
        let undecided = #expect(throws: AsyncSocketError.self) { try secure.replaceTLS(settings) }
        #expect(undecided?.code == .badConfiguration && undecided?.message.contains("pass a trust closure") == true)
    }

    @Test func settingsAreReloadedWhenTheFileChanges() async throws {
        let folder = try TemporaryFolder()
        let name = folder.path("name")
        try Data("first.test".utf8).write(to: folder.url("name"), options: .atomic)
        let listener = try DatagramListener(address: .loopback(), dtls: TestCertificates.server())
        let serving = listener.echoing()
        let reads = Findings<String>()
        let watching = Task {
            try await listener.reloadTLS(from: [name], every: .milliseconds(1)) {
                let text = try String(contentsOfFile: name, encoding: .utf8)
                reads.add(text)
                return try TestCertificates.server(for: ["localhost", text])
            }
        }
        try await eventually("it is read") { reads.all.contains("first.test") }
        try Data("second.test".utf8).write(to: folder.url("name"), options: .atomic)
        try await eventually("the change is read") { reads.all.contains("second.test") }
        try await eventually("a client sees it") {
            Self.names(try await Self.client(of: listener)) == ["localhost", "second.test"]
        }
        await listener.close(timeout: .zero)
        // `reloadTLS` returns after the shutdown of the listener.
        try await watching.value
        try await serving.value
    }
}
