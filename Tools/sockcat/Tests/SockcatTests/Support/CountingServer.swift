import AsyncSockets
import Foundation
import Synchronization

@testable import SockcatCommands

/// A server on 127.0.0.1 that counts its connections, and forwards or refuses each of them.
final class CountingServer: Sendable {
    enum Action: Sendable {
        case forward(toPort: Int)
        /// Sends bytes and closes the connection.
        case refuse([UInt8])
        /// Serves the connection in the test.
        case serve(@Sendable (AsyncSocket) async throws -> Void)

        static func refuse(_ text: String) -> Action { .refuse(Array(text.utf8)) }
    }

    let port: Int
    private let listener: SocketListener
    private let running: Task<Void, any Error>
    private let counter: Counter

    private final class Counter: Sendable {
        let value = Atomic(0)
    }

    /// - Parameter action: Selects what happens to a connection by its number, starting at 1.
    init(_ action: @escaping @Sendable (Int) -> Action) throws {
        let (listener, counter) = (try SocketListener(port: 0, interface: "127.0.0.1"), Counter())
        (self.listener, self.counter, port) = (listener, counter, Int(listener.localPort))
        running = Task {
            try await listener.run(onError: { _, _ in }) { client in
                let number = counter.value.add(1, ordering: .relaxed).newValue
                try await Self.perform(action(number), client)
            }
        }
    }

    private static func perform(_ action: Action, _ client: AsyncSocket) async throws {
        switch action {
        case .forward(let port):
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: port) { _ = try await client.relay(with: $0) }
        case .refuse(let bytes):
            if !bytes.isEmpty { try await client.write(bytes) }
            try await client.close()
        case .serve(let body): try await body(client)
        }
    }

    /// The number of connections that have arrived.
    var count: Int { counter.value.load(ordering: .relaxed) }

    func stop() async {
        running.cancel()
        _ = await running.result
    }
}
