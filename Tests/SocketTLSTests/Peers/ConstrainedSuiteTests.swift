import AsyncSocketsTesting
import COpenSSL
import Testing

@testable import SocketTLS

/// `TLSPolicy.constrainedDevices`. `DTLSInteropTests` uses its suites with other programs.
@Suite struct ConstrainedSuiteTests {
    /// The TLS 1.2 suites of a context, by OpenSSL's names.
    private func suites(_ settings: TLSSettingValues) throws -> [String] {
        let context = try TLSContext(ContextKey(settings))
        let stack = SSL_CTX_get_ciphers(context.handle.context)
        return (0..<COpenSSL_sk_SSL_CIPHER_count(stack)).compactMap { index in
            COpenSSL_sk_SSL_CIPHER(stack, index).flatMap { SSL_CIPHER_get_name($0) }.map { String(cString: $0) }
        }.filter { !$0.hasPrefix("TLS_") }
    }

    @Test func theSuitesAreUsedOnlyWithTheirPolicyAndAKey() throws {
        var fixture = try PreSharedKeyFixture(.tls12)
        let usual = ["ECDHE-PSK-CHACHA20-POLY1305"]
        for values in [fixture.client.values, fixture.server.values] { #expect(try suites(values) == usual) }
        fixture.client.policy = .constrainedDevices
        fixture.server.policy = .constrainedDevices
        for values in [fixture.client.values, fixture.server.values] {
            #expect(try suites(values) == usual + ["PSK-AES128-GCM-SHA256", "PSK-AES128-CCM8"])
        }
        var certificates = try Fixture(.tls12)
        certificates.client.policy = .constrainedDevices
        #expect(try !suites(certificates.client.values).contains { $0.hasPrefix("PSK") })
    }

    /// A peer that supports the stronger suite gets it.
    @Test(arguments: versions) func theStrongerSuiteIsPreferred(_ version: TLSProtocolVersion) throws {
        var fixture = try PreSharedKeyFixture(version)
        fixture.client.policy = .constrainedDevices
        fixture.server.policy = .constrainedDevices
        let pair = try fixture.shaken()
        #expect(pair.isComplete)
        let suite = try #require(pair.client.session?.cipherSuite)
        #expect(version == .tls13 || suite == "TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256")
    }

    @Test(arguments: [3, 4, 5]) func aHigherSecurityLevelIsAContradiction(_ level: Int) throws {
        var settings = try PreSharedKeyFixture(.tls12).server
        settings.policy = .constrainedDevices
        settings.policy.securityLevel = level
        let error = #expect(throws: TLSError.self) { try TLSContext.context(for: settings) }
        #expect(error?.code == .invalidSettings && error?.message.contains("requires securityLevel 2") == true)
    }
}
