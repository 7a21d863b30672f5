import AsyncSocketsTesting
import SocketTLS
import Testing

@Suite struct UnusableSettingsTests {
    @Test func settingsAreValidatedWithoutAConnection() throws {
        var settings = try Fixture(.tls13).client
        try settings.validate()
        settings.policy.cipherSuites = ["TLS_NONE"]
        #expect { try settings.validate() } throws: { ($0 as? TLSError)?.code == .invalidSettings }
        settings = try Fixture(.tls13).client
        settings.trustRoots = .file(path: "/none.pem")
        #expect { try settings.validate() } throws: { ($0 as? TLSError)?.code == .invalidCertificate }
        // A connection to a host name has that name.
        try TLSClientSettings.client.validate()
        #expect { try TLSSettings.client(serverName: "a..b").validate() } throws: {
            ($0 as? TLSError)?.code == .invalidSettings
        }
    }
}
