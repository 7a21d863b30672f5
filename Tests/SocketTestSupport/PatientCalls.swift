package import AsyncSockets
package import AsyncSocketsTesting
package import SocketCore

// Calls without a timeout give up after 30 or 60 seconds, which can be too short for a single handshake on a
// busy machine. These overloads use `.patient`. Tests that import this module call them automatically,
// because Swift prefers an overload that needs no default arguments.

extension AsyncSocket {
    package nonisolated(nonsending) func connect(to host: String, port: some BinaryInteger) async throws {
        try await connect(to: host, port: port, timeout: .patient)
    }

    package nonisolated(nonsending) func connect(
        to host: String, port: some BinaryInteger, tls: TLSClientSettings?
    ) async throws {
        try await connect(to: host, port: port, tls: tls, timeout: .patient)
    }

    package nonisolated(nonsending) func connect(to address: SocketEndpoint) async throws {
        try await connect(to: address, timeout: .patient)
    }

    package nonisolated(nonsending) static func withConnection<Result>(
        to host: String, port: some BinaryInteger, _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Result
    ) async throws -> Result {
        try await withConnection(to: host, port: port, timeout: .patient, body)
    }

    package nonisolated(nonsending) static func withConnection<Result>(
        to host: String, port: some BinaryInteger, tls: TLSClientSettings?,
        _ body: nonisolated(nonsending) (AsyncSocket) async throws -> Result
    ) async throws -> Result {
        try await withConnection(to: host, port: port, tls: tls, timeout: .patient, body)
    }

    package nonisolated(nonsending) func close() async throws {
        try await close(timeout: .patient)
    }
}

extension HotRestart {
    package convenience init(path: String) async throws { try await self.init(path: path, timeout: .patient) }

    package func takeOver(_ listeners: [String: SocketListener]) async throws {
        try await takeOver(listeners, timeout: .patient)
    }

    package func takeOver(datagrams: [String: DatagramListener]) async throws {
        try await takeOver(datagrams: datagrams, timeout: .patient)
    }

    package func takeOver(
        _ listeners: [String: SocketListener], datagrams: [String: DatagramListener]
    ) async throws {
        try await takeOver(listeners, datagrams: datagrams, timeout: .patient)
    }

    @discardableResult
    package func untilReplaced(closeTimeout: Duration?) async throws -> Bool {
        try await untilReplaced(closeTimeout: closeTimeout, startTimeout: .patient)
    }
}

extension TLSSettings {
    /// These settings with `.patient` handshake and trust timeouts.
    package var patient: TLSSettings {
        var settings = self
        (settings.handshakeTimeout, settings.trustTimeout) = (.patient, .patient)
        return settings
    }
}

extension ScriptedPeer {
    package static func listening(_ steps: [Step]) throws(LoopbackError) -> ScriptedPeer {
        try listening(steps, timeout: .patient)
    }

    package static func connecting(toPort port: UInt16, _ steps: [Step]) throws(LoopbackError) -> ScriptedPeer {
        try connecting(toPort: port, steps, timeout: .patient)
    }
}

extension TestSignal {
    package func wait() async throws(LoopbackError) {
        try await wait(within: .patient)
    }
}

extension TamperingRelay {
    package convenience init(toPort target: UInt16) throws(LoopbackError) {
        try self.init(toPort: target, timeout: .patient)
    }

    package convenience init(toPort target: UInt16, fromClient: [Tampering]) throws(LoopbackError) {
        try self.init(toPort: target, fromClient: fromClient, timeout: .patient)
    }

    package convenience init(toPort target: UInt16, fromServer: [Tampering]) throws(LoopbackError) {
        try self.init(toPort: target, fromServer: fromServer, timeout: .patient)
    }

    package func finish() async throws(LoopbackError) {
        try await finish(within: .patient)
    }
}
