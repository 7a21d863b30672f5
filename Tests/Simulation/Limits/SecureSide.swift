internal import AsyncSockets
internal import Foundation
internal import StartTLSProtocols

/// A task that upgrades the connection, and then exchanges bytes with its peer.
final class SecureSide: LimitTask, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    private struct Doubt: Error {}

    private let index: Int
    private var hasExchanged = false
    private var decisionStart: UInt64?

    init(_ index: Int, _ descriptor: Int32, _ course: LimitRun) {
        self.index = index
        super.init(index == 0 ? "client" : "server", course) { try AsyncSocket(adopting: descriptor) }
    }

    override func perform(_ socket: AsyncSocket) async throws {
        try await upgrade(socket)
        try await exchange(socket)
        hasExchanged = true
    }

    // MARK: - The upgrade

    private func upgrade(_ socket: AsyncSocket) async throws {
        switch (plan.mode, index) {
        case (.dialogue, 0):
            let client: StartTLSClient = [.smtp(name: "client.example"), .imap, .postgres][plan.dialogue]
            try await socket.startTLS(as: client, settings: Certificates.client)
        case (.dialogue, _):
            let servers: [StartTLSServer] = [
                .smtp(greeting: "mail"), .imap(greeting: "mail"), .postgres(acceptsDirectTLS: false),
            ]
            let server = servers[plan.dialogue]
            try await socket.acceptStartTLS(as: server, settings: Certificates.server)
        case (_, 0):
            try await socket.startTLS(settings: plan.clientSettings) { [self] _ in try await decide() }
            if !plan.isTrusted { complain("the connection is secure, although the server is not trusted") }
        default: try await socket.startTLS(settings: Certificates.server)
        }
        course.trace.add("isSecure", index)
    }

    private func decide() async throws -> Bool {
        if decisionStart != nil { complain("a second decision") }
        decisionStart = course.kernel.now
        if plan.decision == .never {
            while !Task.isCancelled { await course.suspend(10_000_000) }
        } else {
            await course.suspend(UInt64(plan.decisionTime) * 1_000_000)
        }
        course.hasDecided = true
        if plan.decision == .fail { throw Doubt() }
        return plan.decision != .reject
    }

    override func check(_ error: any Error) {
        if plan.isDisturbed { return }
        if plan.isTrusted { return complain("\(error)") }
        guard index == 0 else { return }
        let code = (error as? AsyncSocketError)?.code
        if !plan.isDecided {
            if code != .trustTimeout { complain("\(error) instead of a timeout of the decision") }
            return course.checkTime(since: decisionStart ?? 0, UInt64(plan.trustTimeout) * 1_000_000, "the time for a decision")
        }
        if plan.decision == .fail, !(error is Doubt) { complain("\(error) instead of the error of the decision") }
        if plan.decision == .reject, code != .tls { complain("\(error) instead of a rejection") }
    }

    // MARK: - The exchange

    private func exchange(_ socket: AsyncSocket) async throws {
        let (own, others) = (course.pattern(of: index), course.pattern(of: 1 - index))
        async let writing: Void = socket.write(own.bytes)
        let data = try await socket.read(exactly: others.bytes.count)
        if let complaint = others.complaint(about: data, at: 0) { complain(complaint) }
        if plan.mode != .dialogue, !course.hasDecided { complain("bytes arrive before the decision") }
        try await writing
        if index == 0 { return try await socket.close() }
        guard try await socket.read() == nil else { return complain("more bytes than were sent") }
        try await socket.close()
    }

    override func complaintAtEnd() -> String? {
        super.complaintAtEnd() ?? (plan.succeeds && !hasExchanged ? "the exchange is incomplete" : nil)
    }
}
