import AsyncSocketsTesting
import COpenSSL
import Glibc
import SocketBuffers
import Testing

@testable import SocketTLS

/// Compressed certificates (RFC 8879), supported since OpenSSL 3.2. The limits for certificates do not apply
/// to them. The loaded library may be newer than the headers used for the build.
@Suite struct CompressedCertificateTests {
    private static let compressCertificate = 27

    /// Returns the extension numbers of the ClientHello in the first record of `bytes`.
    private func extensions(ofHello bytes: [UInt8]) -> [Int] {
        var numbers: [Int] = []
        let isWhole = bytes.dropFirst(5).withUnsafeBytes {
            ClientHelloMessage($0).forEachExtension { type, _ in numbers.append(type) }
        }
        return isWhole ? numbers : []
    }

    /// Returns whether the loaded OpenSSL compresses certificates. If so, a client without our options offers
    /// it.
    private func isSupported() throws -> Bool {
        let peer = try RawPeer(.tls13)
        OpenSSLError.clearQueue()
        SSL_do_handshake(peer.ssl)
        return extensions(ofHello: peer.takeOutput()).contains(Self.compressCertificate)
    }

    @Test func aClientDoesNotOfferToTakeThem() throws {
        let client = try Fixture(.tls13).engine(.client)
        _ = client.handshake()
        let numbers = extensions(ofHello: Array(client.output.readableBytes))
        #expect(!numbers.isEmpty && !numbers.contains(Self.compressCertificate))
    }

    @Test(arguments: [true, false]) func aServerDoesNotOfferToTakeThem(hasOptions: Bool) throws {
        var fixture = try Fixture(.tls13)
        try fixture.askForClientCertificate()
        let server = try fixture.engine(.server)
        if !hasOptions { SSL_clear_options(server.ssl, .max) }
        let peer = try RawPeer(.tls13)
        peer.noteExtensions()
        peer.shakeHands(with: server)
        let isOffered = peer.extensions.contains(Int32(Self.compressCertificate))
        // Without the options, the server would offer it.
        #expect(try isOffered == (!hasOptions && isSupported()))
    }

    /// This side offers compression, which the options of its context normally prevent.
    @Test(arguments: Side.allCases) func theyAreRefusedBeforeTheyAreDecompressed(role: Side) throws {
        guard try isSupported() else { return }
        var fixture = try Fixture(.tls13)
        try fixture.askForClientCertificate()
        let engine = try fixture.engine(role)
        SSL_clear_options(engine.ssl, .max)
        let peer = try role == .server ? RawPeer(.tls13) : fixture.clientAndServer(.tls13).peer
        try peer.show(ForgedCertificate(ForgedKey(curve: "P-256")))
        if role == .client { try compressCertificate(of: peer) }
        peer.shakeHands(with: engine)
        let error = engine.handshake().error
        #expect(error?.code == .protocolViolation && error?.message.contains("bad compression algorithm") == true)
        #expect(error?.sentAlert == .illegalParameter || error?.sentAlert == .badCertificate)
        #expect(engine.session == nil && !engine.isAwaitingTrust)
    }

    /// Calls `SSL_compress_certs`, which the headers may lack. A server compresses its certificate in
    /// advance.
    private func compressCertificate(of peer: RawPeer) throws {
        typealias Compress = @convention(c) (OpaquePointer?, Int32) -> Int32
        let function = try #require(dlsym(nil, "SSL_compress_certs"))
        #expect(unsafeBitCast(function, to: Compress.self)(peer.ssl, 0) > 0)
    }
}
