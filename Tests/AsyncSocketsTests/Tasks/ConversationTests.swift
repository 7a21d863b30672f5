import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Reading and writing in separate tasks, lines, and ports of any integer type.
@Suite(.timeLimit(.patient)) struct ConversationTests {
    @Test(arguments: [false, true]) func oneTaskReadsAndAnotherWrites(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let client = pair.client
        let reading = Task {
            var lines: [String] = []
            for try await line in client.lines { lines.append(line) }
            return lines
        }
        let echo = Task {
            for try await line in pair.server.lines { try await pair.server.writeLine("\(line)!", endingWith: "\n") }
            try await pair.server.close()
        }
        let sent = (0..<1_000).map { "line \($0)" }
        for line in sent { try await client.writeLine(line) }
        client.closeWriteStream()
        #expect(try await reading.value == sent.map { "\($0)!" })
        try await echo.value
    }

    /// Untrusted text in each of them could inject a second command.
    @Test(arguments: ["RCPT TO:<a@b>\r\nRSET", "a\n", "\r", "\n", "a\rb"])
    func aLineHasNoEndInIt(_ line: String) async throws {
        let pair = try await SocketPair()
        let error = await #expect(throws: AsyncSocketError.self) { try await pair.client.writeLine(line) }
        #expect(error?.code == .badParameter)
        try await pair.client.writeLine("")
        #expect(try await pair.server.read(exactly: 2) == Data("\r\n".utf8))
    }

    @Test func aPortMayBeOfAnyType() async throws {
        let listener = try SocketListener(port: 0 as Int8, interface: "127.0.0.1")
        let url = try #require(URL(string: "echo://127.0.0.1:\(listener.localPort)/"))
        try await serving(listener, { try await $0.echo() }) { _ in
            let port: Int = try #require(url.port)
            let line = try await AsyncSocket.withConnection(to: "127.0.0.1", port: port) { socket in
                try await socket.writeLine("hello")
                return try await socket.readLine()
            }
            #expect(line == "hello")
        }
    }

    @Test(arguments: [-1, 65_536, Int.max, Int.min]) func otherNumbersAreNoPorts(_ port: Int) async throws {
        let socket = AsyncSocket()
        let errors = [
            await #expect(throws: AsyncSocketError.self) { try await socket.connect(to: "127.0.0.1", port: port) },
            await #expect(throws: AsyncSocketError.self) {
                try await AsyncSocket.withConnection(to: "127.0.0.1", port: port) { _ in }
            },
            await #expect(throws: AsyncSocketError.self) { try await SocketEndpoint.lookUp(host: "127.0.0.1", port: port) },
            #expect(throws: AsyncSocketError.self) { try SocketListener(port: port) },
        ]
        for error in errors {
            #expect(error?.code == .badParameter)
            #expect(error?.message.contains("\(port)") == true)
        }
    }
}
