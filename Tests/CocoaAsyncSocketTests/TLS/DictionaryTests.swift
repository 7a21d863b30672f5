import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct DictionaryTests {
    /// Starts TLS with these settings, and returns the error of the connection and the bytes that the peer
    /// received.
    private func end(of settings: [String: NSObject]) async throws -> (error: NSError?, seen: String) {
        let peer = try ScriptedPeer.listening([.expect("STARTTLS\r\n"), .expectEnd])
        let diary = Diary()
        let socket = makeSocket(diary)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.write(Data("STARTTLS\r\n".utf8), withTimeout: -1, tag: 1)
        try await diary.wait(for: "wrote 1")
        socket.startTLS(settings)
        socket.write(Data("secret".utf8), withTimeout: -1, tag: 2)
        let error = try await diary.end()
        #expect(!diary.has("secure") && !diary.has("wrote 2"))
        let report = try await peer.finish()
        return (error, report.texts.joined())
    }

    private func expectRefusal(of settings: [String: NSObject], saying message: String) async throws {
        let (error, seen) = try await end(of: settings)
        #expect(error?.domain == GCDAsyncSocketErrorDomain && error?.code == GCDAsyncSocketError.otherError.rawValue)
        #expect(error?.localizedDescription.contains(message) == true, "\(error?.localizedDescription ?? "")")
        #expect(!seen.contains("secret"))
    }

    @Test(
        arguments: [
            "kCFStreamSSLAllowsAnyRoot", "kCFStreamSSLAllowsExpiredRoots", "kCFStreamSSLAllowsExpiredCertificates",
            "kCFStreamSSLValidatesCertificateChain", "kCFStreamSSLLevel",
        ])
    func unavailableKeysAreRejectedAsInGCDAsyncSocket(key: String) async throws {
        try await expectRefusal(of: [key: true as NSObject], saying: "Security option unavailable - \(key)")
    }

    @Test func theRefusedKeysHaveTheirNames() {
        let names = [
            kCFStreamSSLAllowsAnyRoot, kCFStreamSSLAllowsExpiredRoots, kCFStreamSSLAllowsExpiredCertificates,
            kCFStreamSSLValidatesCertificateChain, kCFStreamSSLLevel,
        ]
        #expect(names.allSatisfy { ($0 as String).hasPrefix("kCFStreamSSL") } && Set(names).count == 5)
    }

    @Test(
        arguments: [
            GCDAsyncSocketManuallyEvaluateTrust, "kCFStreamSSLPeerName", "kCFStreamSSLCertificates", "kCFStreamSSLIsServer",
            GCDAsyncSocketSSLPeerID, GCDAsyncSocketSSLProtocolVersionMin, GCDAsyncSocketSSLProtocolVersionMax,
            GCDAsyncSocketSSLSessionOptionFalseStart, GCDAsyncSocketSSLSessionOptionSendOneByteRecord,
            GCDAsyncSocketSSLCipherSuites, GCDAsyncSocketSSLALPN, GCDAsyncSocketSSLDiffieHellmanParameters,
            GCDAsyncSocketUseCFStreamForTLS, GCDAsyncSocketSSLAnchorCertificates,
        ])
    func theErrorForAWrongTypeNamesTheKey(key: String) async throws {
        try await expectRefusal(of: [key: NSNull()], saying: "Invalid value for \(key). Value must be of type")
    }

    @Test func anItemOfAWrongTypeIsRefusedByItsKey() async throws {
        let one: NSArray = [NSNull()]
        for key in [GCDAsyncSocketSSLALPN, GCDAsyncSocketSSLCipherSuites, GCDAsyncSocketSSLAnchorCertificates] {
            try await expectRefusal(of: [key: one], saying: "Invalid value for \(key). Each item")
        }
        let certificate = try TestIdentity.root
        try await expectRefusal(
            of: [GCDAsyncSocketSSLCertificates: [certificate] as NSArray],
            saying: "The first item of the array must be of type SecIdentity")
        let identity = try TestIdentity.make().identity
        try await expectRefusal(
            of: [GCDAsyncSocketSSLCertificates: [identity, identity] as NSArray], saying: "must be of type SecCertificate")
        try await expectRefusal(
            of: [GCDAsyncSocketSSLAnchorCertificates: [identity] as NSArray],
            saying: "Invalid value for \(GCDAsyncSocketSSLAnchorCertificates). Each item")
    }

    /// Each key with values of all types, with an untrusted server.
    @Test(arguments: [
        GCDAsyncSocketManuallyEvaluateTrust, "kCFStreamSSLPeerName", "kCFStreamSSLCertificates", "kCFStreamSSLIsServer",
        GCDAsyncSocketSSLPeerID, GCDAsyncSocketSSLProtocolVersionMin, GCDAsyncSocketSSLProtocolVersionMax,
        GCDAsyncSocketSSLCipherSuites, GCDAsyncSocketSSLALPN, GCDAsyncSocketSSLAnchorCertificates,
        GCDAsyncSocketSSLClientAuthentication, GCDAsyncSocketUseCFStreamForTLS, "kCFStreamSSLValidatesCertificateChain",
        "kCFStreamSSLValidatesCertificateChains",
    ])
    func noSettingEndsInPlaintextOrWithAnUnknownPeer(key: String) async throws {
        let issued = try TestCertificates.stranger.issue(.server(names: ["localhost"]))
        let values: [NSObject] = [
            NSNull(), 0 as NSObject, 1 as NSObject, -1 as NSObject, NSNumber(value: Int64.max), "" as NSObject,
            "localhost" as NSObject,
            "NO" as NSObject, [] as NSArray, [NSNull()] as NSArray, [0xC02B] as NSArray, Data() as NSObject, NSDictionary(),
            [try TestIdentity.root] as NSArray, [try TestIdentity.make().identity] as NSArray,
        ]
        for value in values {
            let peer = try ScriptedPeer.listening([.startTLS(.server(identity: try issued.identity())), .expect("secret")])
            let diary = Diary()
            let socket = makeSocket(diary)
            try socket.connect(toHost: "localhost", onPort: peer.port)
            socket.startTLS([key: value])
            socket.write(Data("secret".utf8), withTimeout: -1, tag: 1)
            socket.readData(withTimeout: -1, tag: 1)
            #expect(try await diary.end() != nil, "\(key): \(value)")
            #expect(!diary.has("secure") && !diary.has("wrote 1"), "\(key): \(value)")
            peer.stop()
        }
    }

    @Test func unsupportedTLSVersionsAreRejected() async throws {
        let maximum = GCDAsyncSocketSSLProtocolVersionMax, minimum = GCDAsyncSocketSSLProtocolVersionMin
        for version in [SSLProtocol.sslProtocol3, .tlsProtocol1, .tlsProtocol11, .dtlsProtocol12, .sslProtocolAll] {
            try await expectRefusal(of: [maximum: version.rawValue as NSNumber], saying: "Error in SSLSetProtocolVersionMax")
        }
        try await expectRefusal(
            of: [minimum: SSLProtocol.dtlsProtocol1.rawValue as NSNumber], saying: "Error in SSLSetProtocolVersionMin")
        try await expectRefusal(of: [minimum: 77 as NSNumber], saying: "no SSLProtocol with the number 77")
        try await expectRefusal(
            of: [
                minimum: SSLProtocol.tlsProtocol13.rawValue as NSNumber, maximum: SSLProtocol.tlsProtocol12.rawValue as NSNumber,
            ], saying: "is newer than")
    }

    @Test func aListWithoutUsableCipherSuitesIsRejected() async throws {
        let weak: NSArray = [NSNumber(value: TLS_RSA_WITH_AES_128_CBC_SHA), NSNumber(value: 4), NSNumber(value: 1 << 20)]
        try await expectRefusal(of: [GCDAsyncSocketSSLCipherSuites: weak], saying: "Error in SSLSetEnabledCiphers")
    }

    @Test func aServerWithoutAnIdentityIsRejected() async throws {
        try await expectRefusal(of: [GCDAsyncSocketSSLIsServer: true as NSObject], saying: "needs an identity")
    }

    @Test func aServerCannotEvaluateTrustWithoutRequestingACertificate() async throws {
        let identity = try TestIdentity.make().identity
        try await expectRefusal(
            of: [
                GCDAsyncSocketSSLIsServer: true as NSObject, GCDAsyncSocketManuallyEvaluateTrust: true as NSObject,
                GCDAsyncSocketSSLCertificates: [identity] as NSArray,
            ], saying: "Manual trust validation is not supported for server sockets")
    }

    @Test func invalidPeerNamesAreRejected() async throws {
        for name in ["", ".", "a b", "example\0.org"] {
            let (error, seen) = try await end(of: [GCDAsyncSocketSSLPeerName: name as NSString])
            #expect(error?.code == GCDAsyncSocketError.otherError.rawValue && !seen.contains("secret"))
        }
    }

    @Test func aConnectionWithoutAHostRequiresAPeerName() async throws {
        var ends: [Int32] = [0, 0]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        defer { close(ends[1]) }
        let diary = Diary()
        let socket = try GCDAsyncSocket(
            fromConnectedSocketFD: ends[0], delegate: diary, delegateQueue: DispatchQueue(label: "delegate"))
        socket.startTLS(nil)
        socket.write(Data("secret".utf8), withTimeout: -1, tag: 1)
        #expect(try await diary.end()?.localizedDescription.contains("pass the expected name") == true)
        var byte: UInt8 = 0
        #expect(read(ends[1], &byte, 1) == 0)
    }

    @Test func tlsOnASocketThatIsNotInUseIsDropped() async throws {
        let diary = Diary()
        let socket = makeSocket(diary)
        socket.startTLS([GCDAsyncSocketSSLPeerName: NSNull()])
        let peer = try ScriptedPeer.listening([.expect("plain")])
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.write(Data("plain".utf8), withTimeout: -1, tag: 1)
        try await diary.wait(for: "wrote 1")
        socket.disconnect()
        _ = try await peer.finish()
    }
}
