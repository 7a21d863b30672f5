import AsyncSocketsTesting
import COpenSSL
import SocketTLS
import Testing

/// Policies for what may be negotiated.
@Suite struct PolicyTests {
    private func pair(_ change: (inout TLSClientSettings, inout TLSServerSettings) -> Void) throws -> EnginePair {
        var fixture = try Fixture()
        (fixture.client.minimumVersion, fixture.server.minimumVersion) = (.tls12, .tls12)
        (fixture.client.maximumVersion, fixture.server.maximumVersion) = (nil, nil)
        change(&fixture.client, &fixture.server)
        let pair = try fixture.pair()
        pair.shakeHands()
        return pair
    }

    private func complaint(_ change: (inout TLSPolicy) -> Void) throws -> String? {
        var settings = try Fixture().server
        settings.maximumVersion = nil
        settings.minimumVersion = .tls12
        change(&settings.policy)
        do throws(TLSError) {
            _ = try TLSContext.context(for: settings)
            return nil
        } catch {
            #expect(error.code == .invalidSettings && error.fault == .caller)
            return error.message
        }
    }

    @Test func modernIsTLS13Only() throws {
        #expect(try pair { _, server in server.policy = .modern }.server.session?.protocolVersion == .tls13)
        let old = try pair { client, server in
            server.policy = .modern
            client.maximumVersion = .tls12
        }
        #expect(old.serverError?.code == .noSharedParameters)
    }

    @Test func theDefaultIsIntermediate() throws {
        #expect(TLSSettings.client(serverName: "a").policy == .intermediate)
        for policy in [TLSPolicy.intermediate, .compatible] {
            #expect(try pair { _, server in server.policy = policy }.isComplete)
        }
    }

    @Test func compatibleTakesOldSuites() throws {
        for (policy, isTaken) in [(TLSPolicy.compatible, true), (.intermediate, false)] {
            let pair = try pair { client, server in
                server.policy = policy
                client.maximumVersion = .tls12
                client.policy.cipherSuites = ["TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"]
            }
            #expect(pair.isComplete == isTaken)
            #expect(pair.server.session?.cipherSuite == (isTaken ? "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA" : nil))
        }
    }

    @Test(arguments: [true, false]) func theServersOrderDecidesUnlessYouSaySo(_ prefersServerCipherSuites: Bool) throws {
        let (one, two) = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384")
        let pair = try pair { client, server in
            (client.minimumVersion, server.minimumVersion) = (.tls13, .tls13)
            client.policy.cipherSuites = [one, two]
            server.policy.cipherSuites = [two, one]
            server.policy.prefersServerCipherSuites = prefersServerCipherSuites
        }
        #expect(pair.server.session?.cipherSuite == (prefersServerCipherSuites ? two : one))
    }

    @Test(arguments: versions, ["secp256r1", "secp384r1", "x25519", "x448"])
    func theGroupIsOneOfTheList(_ version: TLSProtocolVersion, _ group: String) throws {
        let pair = try pair { client, server in
            (client.maximumVersion, server.maximumVersion) = (version, version)
            // In TLS 1.2, the groups must include the certificate's curve.
            client.policy.groups = group == "secp256r1" ? [group] : [group, "secp256r1"]
            server.policy.groups = [group]
        }
        let found = pair.server.session?.group?.lowercased()
        #expect(pair.isComplete && (found == group || found == "prime256v1" && group == "secp256r1"), "\(found ?? "")")
    }

    @Test(arguments: versions) func theSignatureIsOneOfTheList(_ version: TLSProtocolVersion) throws {
        for (algorithm, isShared) in [("ecdsa_secp256r1_sha256", true), ("rsa_pss_rsae_sha256", false)] {
            let pair = try pair { client, server in
                (client.maximumVersion, server.maximumVersion) = (version, version)
                client.policy.signatureAlgorithms = [algorithm]
            }
            #expect(pair.isComplete == isShared)
        }
    }

    /// The server's list, which is sent, and the client's own list.
    @Test(arguments: versions, Side.allCases)
    func aClientSignsWithOneOfTheList(_ version: TLSProtocolVersion, _ side: Side) throws {
        let authority = try CertificateAuthority(name: "Clients")
        for (keyType, isShared) in [(CertificateAuthority.KeyType.p256, true), (.rsa2048, false)] {
            let identity = try authority.issue(.client(commonName: "alice"), keyType: keyType).identity()
            let roots = try authority.roots
            let pair = try pair { client, server in
                (client.maximumVersion, server.maximumVersion) = (version, version)
                client.identity = identity
                (server.values.clientCertificates, server.trustRoots) = (.required, roots)
                // The server's own key uses this curve.
                if side == .server {
                    server.policy.signatureAlgorithms = ["ecdsa_secp256r1_sha256"]
                } else {
                    client.policy.signatureAlgorithms = ["ecdsa_secp256r1_sha256"]
                }
            }
            #expect(pair.isComplete == isShared)
            #expect(pair.server.session?.peerSignatureAlgorithm == (isShared ? "ECDSA-SHA256" : nil))
            #expect(isShared || pair.serverError != nil)
        }
    }

    // MARK: - Invalid policies

    @Test func theErrorForAnUnknownNameListsTheKnownNames() throws {
        let suite = try #require(try complaint { $0.cipherSuites = ["TLS_NO_SUCH_SUITE"] })
        #expect(suite.contains("TLS_NO_SUCH_SUITE") && suite.contains("TLS_AES_128_GCM_SHA256"))
        #expect(suite.contains("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"))
        let group = try #require(try complaint { $0.groups = ["x25519", "nosuchgroup"] })
        #expect(group.contains("nosuchgroup") && group.contains("secp384r1"))
        let signature = try #require(try complaint { $0.signatureAlgorithms = ["nosuchalgorithm"] })
        #expect(signature.contains("nosuchalgorithm") && signature.contains("ed25519"))
    }

    @Test(arguments: [
        "AECDH-AES256-SHA", "ADH-AES256-GCM-SHA384", "ECDHE-RSA-NULL-SHA", "AES256-GCM-SHA384", "DHE-RSA-AES256-GCM-SHA384",
        "ECDHE-PSK-CHACHA20-POLY1305", "ECDHE-RSA-DES-CBC3-SHA", "ALL", "", "ECDHE-RSA-AES256-GCM-SHA384:ALL", "@SECLEVEL=0",
    ])
    func noPolicyMayNameWeakSuites(_ name: String) throws {
        #expect(try complaint { $0.cipherSuites.append(name) } != nil)
    }

    @Test(arguments: ["ffdhe2048", "", "x25519:secp256r1", "?x25519", "*x25519", "DEFAULT"])
    func noPolicyMayNameOtherGroups(_ name: String) throws {
        #expect(try complaint { $0.groups = [name] } != nil)
    }

    @Test func emptyListsAndDuplicatesAreRefused() throws {
        #expect(try complaint { $0.cipherSuites = [] } != nil)
        #expect(try complaint { $0.cipherSuites = ["TLS_AES_128_GCM_SHA256"] }?.contains("TLS 1.2") == true)
        #expect(try complaint { $0.cipherSuites = ["ECDHE-ECDSA-AES128-GCM-SHA256"] }?.contains("TLS 1.3") == true)
        #expect(try complaint { $0.cipherSuites += ["TLS_AES_128_GCM_SHA256"] }?.contains("twice") == true)
        #expect(try complaint { $0.groups = [] } != nil)
        #expect(try complaint { $0.groups = ["x25519", "X25519"] } != nil)
        #expect(try complaint { $0.signatureAlgorithms = [] } != nil)
        for level in [-1, 0, 1, 6] { #expect(try complaint { $0.securityLevel = level } != nil) }
        #expect(try complaint { $0.securityLevel = 3 } == nil)
    }

    @Test func theLevelCounts() throws {
        let authority = try CertificateAuthority(name: "RSA")
        var settings = TLSSettings.server(identity: try authority.issue(.server(names: ["a"]), keyType: .rsa2048).identity())
        settings.policy.securityLevel = 3
        #expect(throws: TLSError.self) { try TLSContext.context(for: settings) }
        settings.policy.securityLevel = 2
        _ = try TLSContext.context(for: settings)
    }
}

/// The FIPS setting.
@Suite struct FIPSTests {
    @Test(arguments: versions) func withoutAProviderTheSettingsFail(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.policy = .fips
        fixture.server.policy = .fips
        let error = thrown { try TLSContext.context(for: fixture.server) }
        if OSSL_PROVIDER_available(nil, "fips") == 1 {
            #expect(error == nil)
            #expect(try fixture.clientError() == nil)
        } else {
            #expect(error?.code == .invalidSettings)
            #expect(error?.message.contains("no FIPS provider") == true)
            let ofClient = thrown { try TLSContext.context(for: fixture.client) }
            #expect(ofClient?.code == .invalidSettings && ofClient?.message.contains("no FIPS provider") == true)
        }
    }
}
