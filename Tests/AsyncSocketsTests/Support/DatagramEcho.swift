import Foundation

@testable import AsyncSockets

extension DatagramListener {
    /// Runs the listener in a task and echoes each datagram.
    func echoing() -> Task<Void, any Error> {
        Task {
            try await run { socket in
                for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
            }
        }
    }
}

extension AsyncUDPSocket {
    /// Sends a datagram and returns the reply.
    func ask(_ text: String) async throws -> String {
        try await send(Data(text.utf8))
        return String(decoding: try await receive().data, as: UTF8.self)
    }
}
