import CocoaAsyncSocket
import Foundation

final class PinnedClient: NSObject {
    private let host: String
    private let authority: SecCertificate
    private let pinned: SecCertificate
    private let queue = DispatchQueue(label: "pinned-client", qos: .userInitiated)
    private var socket: GCDAsyncSocket?

    init(host: String, authority: SecCertificate, pinned: SecCertificate) {
        self.host = host
        self.authority = authority
        self.pinned = pinned
        super.init()
    }

    func connect(port: UInt16) {
        let socket = GCDAsyncSocket(delegate: self, delegateQueue: queue)
        self.socket = socket
        do {
            try socket.connect(toHost: host, onPort: port, withTimeout: 10)
        } catch {
            print("failed: \(error)")
            exit(1)
        }
    }

    /// Returns whether the chain leads to our CA, is valid for the host, and starts with the pinned
    /// certificate.
    private func isTrusted(_ trust: SecTrust) -> Bool {
        SecTrustSetPolicies(trust, SecPolicyCreateSSL(true, host as CFString))
        SecTrustSetAnchorCertificates(trust, [authority] as CFArray)
        SecTrustSetAnchorCertificatesOnly(trust, true)
        var error: CFError?
        guard SecTrustEvaluateWithError(trust, &error) else {
            print("not trusted: \(error?.localizedDescription ?? "unknown reason")")
            return false
        }
        guard let chain = SecTrustCopyCertificateChain(trust) as? [SecCertificate], let leaf = chain.first else {
            return false
        }
        let name = SecCertificateCopySubjectSummary(leaf) as String? ?? "?"
        print("\(chain.count) certificates, the first is for \(name)")
        guard SecCertificateCopyData(leaf) as Data == SecCertificateCopyData(pinned) as Data else {
            print("not trusted: another certificate is pinned")
            return false
        }
        return true
    }
}

extension PinnedClient: GCDAsyncSocketDelegate {
    func socket(_ sock: GCDAsyncSocket, didConnectToHost host: String, port: UInt16) {
        sock.startTLS([
            GCDAsyncSocketManuallyEvaluateTrust: true as NSNumber,
            kCFStreamSSLPeerName as String: self.host as NSString,
            GCDAsyncSocketSSLProtocolVersionMin: NSNumber(value: SSLProtocol.tlsProtocol12.rawValue),
        ])
    }

    func socket(
        _ sock: GCDAsyncSocket, didReceive trust: SecTrust, completionHandler: @escaping (Bool) -> Void
    ) {
        // The evaluation may access the network.
        DispatchQueue.global(qos: .default).async {
            completionHandler(self.isTrusted(trust))
        }
    }

    func socketDidSecure(_ sock: GCDAsyncSocket) {
        print("secure")
        sock.write("GET / HTTP/1.0\r\n\r\n".data(using: .utf8), withTimeout: 10, tag: 0)
        sock.readData(to: Data("\r\n\r\n".utf8), withTimeout: 10, tag: 1)
    }

    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int) {
        let head = String(decoding: data, as: UTF8.self)
        print(head.components(separatedBy: "\r\n").first ?? "")
        sock.disconnect()
    }

    func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: Error?) {
        guard let error = err as NSError? else { exit(0) }
        if error.domain == "kCFStreamErrorDomainSSL", error.code == Int(errSSLPeerBadCert) {
            print("failed: we refused the certificate")
        } else {
            print("failed: \(error.localizedDescription) (\(error.domain) \(error.code))")
        }
        exit(1)
    }
}
