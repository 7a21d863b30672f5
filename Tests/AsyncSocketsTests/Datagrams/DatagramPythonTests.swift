import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A peer written in another language.
@Suite(.timeLimit(.patient)) struct DatagramPythonTests {
    private static let echo = """
        import socket, sys
        server = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((sys.argv[1], 0))
        print(server.getsockname()[1], flush=True)
        while True:
            data, sender = server.recvfrom(65536)
            server.sendto(data[::-1], sender)
            if data == b"the end": break
        """

    @Test(arguments: ["127.0.0.1", "::1"]) func pythonAnswersEachDatagram(_ host: String) async throws {
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/python3")
        process.arguments = ["-c", Self.echo, host]
        let output = Pipe()
        process.standardOutput = output
        let (ends, end) = AsyncStream<Int32>.makeStream()
        process.terminationHandler = { end.yield($0.terminationStatus) }
        try process.run()
        var line = Data()
        while line.last != 0x0A { line += try #require(try output.fileHandleForReading.read(upToCount: 1)) }
        let port = try #require(Int(String(decoding: line.dropLast(), as: UTF8.self)))
        try await AsyncUDPSocket.withConnection(to: host, port: port) { socket in
            for size in [0, 1, 2, 1_400, 9_000, 65_507] {
                let data = Data((0..<size).map { UInt8(truncatingIfNeeded: $0) })
                try await socket.send(data)
                #expect(try await socket.receive().data == Data(data.reversed()))
            }
            try await socket.send(Data("the end".utf8))
            #expect(try await socket.receive().data == Data("dne eht".utf8))
        }
        for await status in ends {
            #expect(status == 0)
            break
        }
    }
}
