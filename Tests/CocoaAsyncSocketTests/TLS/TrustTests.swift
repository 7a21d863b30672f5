import AsyncSockets
import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct TrustTests {
    /// Connects to a server with `settings` and starts TLS. Returns the client's diary.
    private func begin(
        _ client: [String: NSObject], host: String = "localhost", server: TLSServerSettings? = nil, _ diary: Diary = Diary()
    ) async throws -> (socket: GCDAsyncSocket, diary: Diary, peer: ScriptedPeer) {
        let peer = try ScriptedPeer.listening([.startTLS(try server ?? TestCertificates.server()), .expect("hello"), .send("x")])
        let socket = makeSocket(diary)
        try socket.connect(toHost: host, onPort: peer.port)
        socket.startTLS(client)
        socket.write(Data("hello".utf8), withTimeout: -1, tag: 1)
        return (socket, diary, peer)
    }

    private func failure(
        _ client: [String: NSObject], host: String = "localhost", server: TLSServerSettings? = nil, _ diary: Diary = Diary()
    ) async throws -> NSError? {
        let (socket, diary, peer) = try await begin(client, host: host, server: server, diary)
        let error = try await withExtendedLifetime(socket) { diary }.end()
        #expect(!diary.has("secure") && !diary.has("wrote 1"))
        await #expect(throws: LoopbackError.self) { try await peer.finish() }
        return error
    }

    private let manually: [String: NSObject] = [GCDAsyncSocketManuallyEvaluateTrust: true as NSObject]

    @Test func withoutSettingsTheSystemsRootsAndTheHostCount() async throws {
        let error = try await failure([:])
        #expect(error?.domain == "kCFStreamErrorDomainSSL" && error?.code == Int(errSSLNoRootCert))
    }

    @Test func d10WithoutAPeerNameTheConnectedHostIsVerified() async throws {
        let anchors: [String: NSObject] = [GCDAsyncSocketSSLAnchorCertificates: [try TestIdentity.root] as NSArray]
        // The certificate is for localhost, not for the address.
        let error = try await failure(anchors, host: "127.0.0.1")
        #expect(error?.domain == "kCFStreamErrorDomainSSL" && error?.code == Int(errSSLHostNameMismatch))
        let (socket, diary, _) = try await begin(anchors, host: "localhost")
        try await diary.wait(for: "secure")
        socket.disconnect()
    }

    /// A false number means the same as a missing key, and an anchor may be an intermediate certificate.
    @Test func anAnchorNeedNotBeARoot() async throws {
        let anchor = try TestIdentity.certificate(pem: TestCertificates.authority.intermediatePEM)
        let settings: [String: NSObject] = [
            GCDAsyncSocketSSLAnchorCertificates: [anchor] as NSArray,
            GCDAsyncSocketManuallyEvaluateTrust: false as NSObject,
        ]
        let (socket, diary, _) = try await begin(settings)
        try await diary.wait(for: "secure")
        #expect(!diary.has("asked"))
        socket.disconnect()
    }

    @Test func certificateErrorsHaveTheirSecureTransportCodes() async throws {
        let expired = try TestCertificates.server(validity: .expired)
        #expect(try await failure(TestSettings.client(), server: expired)?.code == Int(errSSLCertExpired))
        let early = try TestCertificates.server(validity: .notYetValid)
        #expect(try await failure(TestSettings.client(), server: early)?.code == Int(errSSLCertNotYetValid))
        let other = try TestCertificates.server(for: ["other.example"])
        #expect(try await failure(TestSettings.client(), server: other)?.code == Int(errSSLHostNameMismatch))
    }

    @Test func aRejectionByTheDelegateClosesTheConnection() async throws {
        let diary = Diary()
        let error = try await failure(manually, diary)
        #expect(diary.has("asked") && error?.domain == "kCFStreamErrorDomainSSL" && error?.code == Int(errSSLPeerBadCert))
    }

    @Test func aDelegateWithoutTrustMethodsRejectsThePeer() async throws {
        let peer = try ScriptedPeer.listening([.startTLS(try TestCertificates.server()), .expect("hello")])
        let delegate = ReadersDelegate()
        let socket = makeSocket(delegate)
        try socket.connect(toHost: "localhost", onPort: peer.port)
        socket.startTLS(manually)
        socket.write(Data("hello".utf8), withTimeout: -1, tag: 1)
        try await eventually("the connection has ended") { delegate.endCount == 1 }
        let error = delegate.error as NSError?
        #expect(error?.domain == GCDAsyncSocketErrorDomain && error?.code == GCDAsyncSocketError.otherError.rawValue)
        #expect(error?.localizedDescription.contains("delegate doesn't implement socket:shouldTrustPeer:") == true)
        await #expect(throws: LoopbackError.self) { try await peer.finish() }
    }

    @Test(arguments: [true, false]) func aDelegateCanDecideTrustInATask(isTrusted: Bool) async throws {
        let peer = try ScriptedPeer.listening([.startTLS(try TestCertificates.server()), .expect("hello")])
        let delegate = DecidingDelegate(answering: isTrusted)
        let socket = makeSocket(delegate)
        try socket.connect(toHost: "localhost", onPort: peer.port)
        socket.startTLS(manually)
        socket.write(Data("hello".utf8), withTimeout: -1, tag: 1)
        try await eventually("the verdict counts") { delegate.hasSecured == isTrusted && (isTrusted || delegate.error != nil) }
        if isTrusted {
            _ = try await peer.finish()
        } else {
            #expect((delegate.error as NSError?)?.code == Int(errSSLPeerBadCert))
        }
        socket.disconnect()
    }

    @Test func aDelegateCanEvaluateTrustWithItsOwnRootsAndPins() async throws {
        let authority = try TestCertificates.authority
        let issued = try authority.issue(.server(names: ["localhost"]))
        let pinned = try SecCertificateCopyData(TestIdentity.certificate(pem: issued.certificatePEM)) as Data
        let root = try TestIdentity.root
        let diary = Diary()
        diary.verdict = { trust in
            SecTrustSetAnchorCertificates(trust, [root] as CFArray) == errSecSuccess
                && SecTrustSetAnchorCertificatesOnly(trust, true) == errSecSuccess && Spellings.isPinned(trust, to: pinned)
        }
        let server = TLSServerSettings.server(identity: try issued.identity())
        let (socket, _, peer) = try await begin(manually, server: server, diary)
        try await diary.wait(for: "secure")
        _ = try await peer.finish()
        socket.disconnect()
        // Another certificate from the same CA is not the pinned one.
        let other = Diary()
        other.verdict = diary.verdict
        #expect(try await failure(manually, other)?.code == Int(errSSLPeerBadCert))
    }

    @Test func aFailedTrustEvaluationReportsTheReason() async throws {
        let (root, diary) = (try TestIdentity.root, Diary())
        nonisolated(unsafe) var results: [OSStatus] = []
        diary.verdict = { trust in
            var error: CFError?
            // The system's roots first, then ours with the name of the host, then another name, then none.
            #expect(!SecTrustEvaluateWithError(trust, &error))
            results.append(OSStatus(error?.code ?? 0))
            _ = SecTrustSetAnchorCertificates(trust, [root] as CFArray)
            #expect(SecTrustEvaluateWithError(trust, &error) && error == nil)
            _ = SecTrustSetPolicies(trust, SecPolicyCreateSSL(true, "other.example" as CFString))
            #expect(!SecTrustEvaluateWithError(trust, &error))
            results.append(OSStatus(error?.code ?? 0))
            _ = SecTrustSetPolicies(trust, [SecPolicyCreateSSL(true, nil)] as CFArray)
            return SecTrustEvaluateWithError(trust, nil)
        }
        let (socket, _, _) = try await begin(manually, diary)
        try await diary.wait(for: "secure")
        #expect(results == [errSecNotTrusted, errSecHostNameMismatch])
        socket.disconnect()
    }

    @Test(arguments: ["localhost", "127.0.0.1"]) func anEvaluationVerifiesTheHostOfTheConnection(host: String) async throws {
        let (root, diary) = (try TestIdentity.root, Diary())
        nonisolated(unsafe) var result = errSecSuccess
        diary.verdict = { trust in
            _ = SecTrustSetAnchorCertificates(trust, [root] as CFArray)
            var error: CFError?
            let isTrusted = SecTrustEvaluateWithError(trust, &error)
            result = OSStatus(error?.code ?? 0)
            return isTrusted
        }
        let error = try await failure(manually, host: host, server: TestCertificates.server(for: ["other.example"]), diary)
        #expect(result == errSecHostNameMismatch && error?.code == Int(errSSLPeerBadCert))
    }

    @Test func aTrustEvaluationCanRunOnAQueue() async throws {
        let diary = Diary()
        let root = try TestIdentity.root
        let peer = try ScriptedPeer.listening([.startTLS(try TestCertificates.server()), .send("x")])
        let delegate = QueueEvaluator(root)
        let socket = GCDAsyncSocket(delegate: delegate, delegateQueue: DispatchQueue(label: "delegate"))
        try socket.connect(toHost: "localhost", onPort: peer.port)
        socket.startTLS(manually)
        try await eventually("it is secure") { socket.isSecure }
        socket.disconnect()
        #expect(diary.lines.isEmpty)
        _ = try await peer.finish()
    }

    @Test func manualTrustEvaluationWorksWithoutAHost() async throws {
        var ends: [Int32] = [0, 0]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let (atClient, atServer) = (Diary(), Diary())
        let client = try GCDAsyncSocket(
            fromConnectedSocketFD: ends[0], delegate: atClient, delegateQueue: DispatchQueue(label: "c"))
        let server = try GCDAsyncSocket(
            fromConnectedSocketFD: ends[1], delegate: atServer, delegateQueue: DispatchQueue(label: "s"))
        let root = try TestIdentity.root
        atClient.verdict = { trust in
            _ = SecTrustSetAnchorCertificates(trust, [root] as CFArray)
            return SecTrustEvaluateWithError(trust, nil)
        }
        server.startTLS(try TestSettings.server())
        client.startTLS(manually)
        try await atClient.wait(for: "secure")
        try await atServer.wait(for: "secure")
    }

    @Test func anEmptyPeerNameDisablesTheNameCheckIfTheDelegateDecides() async throws {
        let empty = manually.merging([kCFStreamSSLPeerName as String: "" as NSString]) { $1 }
        let diary = Diary()
        let root = try TestIdentity.root
        nonisolated(unsafe) var results: [Bool] = []
        diary.verdict = { trust in
            _ = SecTrustSetAnchorCertificates(trust, [root] as CFArray)
            results.append(SecTrustEvaluateWithError(trust, nil))
            return results == [true]
        }
        // The certificate is for another host than the one that the socket connected to.
        let other = try TestCertificates.server(for: ["other.example"])
        let peer = try ScriptedPeer.listening([.startTLS(other), .send("x"), .expectEnd])
        let socket = makeSocket(diary)
        try socket.connect(toHost: "localhost", onPort: peer.port)
        socket.startTLS(empty)
        try await diary.wait(for: "secure")
        socket.disconnect()
        _ = try await peer.finish()
        #expect(results == [true])
    }

    @Test func anEmptyPeerNameIsRejectedIfTheLibraryDecides() async throws {
        let error = try await failure([kCFStreamSSLPeerName as String: "" as NSString])
        #expect(error?.domain == GCDAsyncSocketErrorDomain && error?.code == GCDAsyncSocketError.otherError.rawValue)
    }

    @Test func aTruncationIsDistinguishedFromAnOrderlyClose() async throws {
        for (ending, code, domain) in [
            (ScriptedPeer.Step.close, Int(errSSLClosedNoNotify), "kCFStreamErrorDomainSSL"),
            (.sendCloseNotify, GCDAsyncSocketError.closedError.rawValue, GCDAsyncSocketErrorDomain),
        ] {
            let peer = try ScriptedPeer.listening([.startTLS(try TestCertificates.server()), .send("x"), ending])
            let diary = Diary()
            let socket = makeSocket(diary)
            try socket.connect(toHost: "localhost", onPort: peer.port)
            socket.startTLS(try TestSettings.client())
            socket.readData(toLength: 1, withTimeout: -1, tag: 1)
            socket.readData(withTimeout: -1, tag: 2)
            let error = try await diary.end()
            #expect(error?.domain == domain && error?.code == code)
            _ = try await peer.finish()
        }
    }

    // MARK: - Client certificates

    @Test func aServerCanRequestAClientCertificate() async throws {
        let alice = try TestIdentity.make(.client(commonName: "alice"))
        let asks: [String: NSObject] = [
            GCDAsyncSocketSSLClientAuthentication: SSLAuthenticate.alwaysAuthenticate.rawValue as NSNumber,
            GCDAsyncSocketSSLAnchorCertificates: [try TestIdentity.root] as NSArray,
        ]
        let wire = try await Wire.make()
        try await wire.secure(
            client: TestSettings.client([kCFStreamSSLCertificates as String: [alice.identity] as CFArray]),
            server: TestSettings.server(asks))
        var (trust, other): (SecTrust?, SecTrust?)
        wire.server.perform { _ = wire.server.sslContext().map { SSLCopyPeerTrust($0, &trust) } }
        let leaf = trust.flatMap { SecTrustGetCertificateAtIndex($0, 0) }
        #expect(leaf.flatMap(SecCertificateCopySubjectSummary) == "alice")
        // Each side evaluates the other with the roots and the name in its own settings.
        #expect(trust.map { SecTrustEvaluateWithError($0, nil) } == true)
        wire.client.perform { _ = wire.client.sslContext().map { SSLCopyPeerTrust($0, &other) } }
        #expect(other.map { SecTrustEvaluateWithError($0, nil) } == true)
    }

    @Test func aServerRejectsAClientWithoutACertificate() async throws {
        let wire = try await Wire.make()
        let asks: [String: NSObject] = [
            GCDAsyncSocketSSLClientAuthentication: SSLAuthenticate.alwaysAuthenticate.rawValue as NSNumber,
            GCDAsyncSocketSSLAnchorCertificates: [try TestIdentity.root] as NSArray,
        ]
        wire.server.startTLS(try TestSettings.server(asks))
        wire.client.startTLS(try TestSettings.client())
        wire.client.readData(withTimeout: -1, tag: 1)
        #expect(try await wire.atServer.end()?.code == Int(errSSLCertificateRequired))
        #expect(try await wire.atClient.end()?.domain == "kCFStreamErrorDomainSSL")
    }

    @Test func theServersDelegateDecidesWhetherToTrustAClient() async throws {
        let wire = try await Wire.make()
        let alice = try TestIdentity.make(.client(commonName: "alice"))
        let root = try TestIdentity.root
        wire.atServer.verdict = { trust in
            _ = SecTrustSetAnchorCertificates(trust, [root] as CFArray)
            return SecTrustEvaluateWithError(trust, nil) && SecTrustGetCertificateCount(trust) == 2
        }
        let asks: [String: NSObject] = [
            GCDAsyncSocketSSLClientAuthentication: SSLAuthenticate.tryAuthenticate.rawValue as NSNumber,
            GCDAsyncSocketManuallyEvaluateTrust: true as NSObject,
        ]
        try await wire.secure(
            client: TestSettings.client([kCFStreamSSLCertificates as String: [alice.identity] as CFArray]),
            server: TestSettings.server(asks))
        #expect(wire.atServer.has("asked"))
    }
}

/// A delegate that evaluates on another queue.
private final class QueueEvaluator: NSObject, GCDAsyncSocketDelegate {
    private let root: SecCertificate
    private let queue = DispatchQueue(label: "evaluation")

    init(_ root: SecCertificate) {
        self.root = root
    }

    func socket(_ sock: GCDAsyncSocket, didReceive trust: SecTrust, completionHandler: @escaping @Sendable (Bool) -> Void) {
        _ = SecTrustSetAnchorCertificates(trust, [root] as CFArray)
        SecTrustEvaluateAsyncWithError(trust, queue) { _, isTrusted, error in completionHandler(isTrusted && error == nil) }
    }
}
