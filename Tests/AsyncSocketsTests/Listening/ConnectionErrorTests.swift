import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Errors of connections that a listener reports.
@Suite(.timeLimit(.patient)) struct ConnectionErrorTests {
    private struct Failure: Error {}

    /// How the body of a connection ends. The last two happen when the listener cuts the connection.
    enum Ending: CaseIterable, Sendable {
        case cancelsItself, asksWhenCancelled, fails, isCut, failsWhenCut
    }

    /// An error is reported if a connection ends by itself, but not if the listener cuts it.
    @Test(arguments: Ending.allCases) func theErrorsOfAConnectionAreItsOwn(_ ending: Ending) async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let errors = Findings<String>()
        let hasBegun = try TestSignal()
        let report = { @Sendable (error: any Error, _: AsyncSocket) in
            errors.add((error as? AsyncSocketError)?.code.description ?? "\(type(of: error))")
        }
        try await serving(
            listener, onError: report,
            { socket in
                hasBegun.fire()
                switch ending {
                case .cancelsItself: throw CancellationError()
                case .asksWhenCancelled:
                    let read = Task.immediate { for try await _ in socket.chunks {} }
                    read.cancel()
                    try await read.value
                case .fails: throw Failure()
                case .isCut: _ = try await socket.read()
                case .failsWhenCut:
                    _ = try? await socket.read()
                    throw Failure()
                }
            }
        ) { _ in
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            try await hasBegun.wait()
            let isCut = ending == .isCut || ending == .failsWhenCut
            if isCut { await listener.close(timeout: .zero) }
            _ = try? client.receiveAll()
            // Wait for it before the listener cuts the others.
            if !isCut { try await eventually("it is reported") { !errors.all.isEmpty } }
        }
        let expected: [Ending: [String]] = [
            .cancelsItself: ["CancellationError"], .asksWhenCancelled: ["CancellationError"], .fails: ["Failure"], .isCut: [],
            .failsWhenCut: ["Failure"],
        ]
        #expect(errors.all == expected[ending])
    }
}
