import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// A client never takes a failure of the server for the end of its data.
@Suite(.timeLimit(.minutes(5))) struct ListenEndTests {
    @Test(arguments: [TLSProtocolVersion.tls12, .tls13], ["< .", "--keep-open"])
    func aFailureOfTheServerIsNotAnEndOfData(version: TLSProtocolVersion, failure: String) async throws {
        let folder = try TestFolder()
        let authority = try CertificateAuthority()
        try folder.issue(.server(names: ["localhost"]), by: authority, to: "server")
        let server = try await SockcatServer(
            "listen --tls --cert server.pem --key server.key 127.0.0.1:0 \(failure)", in: folder,
            output: "/dev/full")
        var settings = try authority.clientSettings(serverName: "localhost")
        (settings.minimumVersion, settings.maximumVersion) = (version, version)
        let client = AsyncSocket()
        let error = await #expect(throws: AsyncSocketError.self) {
            try await client.connect(to: "127.0.0.1", port: server.port, tls: settings)
            try await client.write("hello")
            _ = try await client.readToEnd()
        }
        // After the reset, the write may fail before the read.
        #expect([ECONNRESET, EPIPE].contains(error?.errno))
        #expect(await server.ended() == ExitStatus.fileFailed.rawValue)
    }
}
