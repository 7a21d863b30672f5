import SocketTLS
import SocketTestSupport

/// A DTLS client that sends only its ClientHello.
final class DTLSHello {
    private let engine: DTLSEngine

    init() throws {
        let settings = try TestCertificates.client().values
        engine = try DTLSEngine(
            context: TLSContext.context(for: settings, over: .datagrams), settings: settings, size: 1400)
        engine.setFirstTimeout(seconds: 60)
    }

    /// Returns its ClientHello, with the cookie if it replies to a HelloVerifyRequest.
    func hello(answering request: some Sequence<UInt8> = []) -> [UInt8] {
        let bytes = Array(request)
        if !bytes.isEmpty { bytes.withUnsafeBytes { engine.receive($0) } }
        _ = engine.handshake()
        var hello: [UInt8] = []
        engine.sendOutput { datagrams in
            hello = datagrams.last.map { Array($0) } ?? []
            return datagrams.count
        }
        return hello
    }
}
