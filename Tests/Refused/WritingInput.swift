// error: value of type 'SocketInput' has no member 'write'

import AsyncSockets

func answer(_ input: SocketInput) async throws {
    try await input.write("hello")
}
