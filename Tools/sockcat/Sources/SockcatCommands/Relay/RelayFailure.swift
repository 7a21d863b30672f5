internal import AsyncSockets

/// The sides of a relayed connection.
enum RelaySide: Sendable {
    case client
    case target
    /// The proxy through which the relay connects to the target.
    case proxy
    /// Neither side sent or received data in time.
    case both
}

/// A failure to forward a connection. The message names the side that failed and its address.
struct RelayFailure: Error {
    let message: String
}

/// A failure of a step in forwarding a connection, with the side that failed.
struct RelayStepFailure: Error {
    let side: RelaySide
    let cause: any Error

    /// Runs a step in which only one side can fail.
    nonisolated(nonsending) static func of<Result>(
        _ side: RelaySide, _ step: nonisolated(nonsending) () async throws -> Result
    ) async throws -> Result {
        do {
            return try await step()
        } catch let error as CancellationError {
            // The relay is closing, so nothing has failed.
            throw error
        } catch {
            throw RelayStepFailure(side: side, cause: error)
        }
    }
}

/// The addresses of a relayed connection, which every message about it contains.
struct RelayAddressTexts: Sendable {
    let client: String
    let target: String
    /// The numeric address of the target, if that is not the text of `target`.
    let resolvedTarget: String?
    let proxy: String?

    /// - Parameter server: The connection to the target or to the proxy.
    init(client: AsyncSocket, target: Endpoint, server: AsyncSocket, proxy: SocketProxy?) {
        self.client = client.originalAddress.text
        self.target = "\(target)"
        self.proxy = proxy.map { "\(Endpoint.host($0.host, port: $0.port))" }
        let address = server.connectedAddress.map { "\($0)" }
        resolvedTarget = proxy == nil && target.hostName != nil && address != self.target ? address : nil
    }

    /// Returns the name of a side and its address, followed by the client that the connection is for.
    func name(of side: RelaySide) -> String {
        switch side {
        case .client: "client \(client)"
        case .target: "target \(target)\(resolvedTarget.map { " at \($0)" } ?? "") (client \(client))"
        case .proxy: "proxy \(proxy ?? "") (target \(target), client \(client))"
        case .both: "client \(client) and target \(target)"
        }
    }
}
