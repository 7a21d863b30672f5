import CocoaAsyncSocket
import Foundation

/// Expressions as used in programs for Apple platforms. Part of the test is that they compile.
package enum Spellings {
    package static func settings(_ identity: SecIdentity, _ certificate: SecCertificate) -> [String: NSObject] {
        [
            kCFStreamSSLPeerName as String: "localhost" as NSString,
            kCFStreamSSLCertificates as String: [identity, certificate] as CFArray,
            kCFStreamSSLIsServer as String: true as CFBoolean,
            GCDAsyncSocketManuallyEvaluateTrust as String: false as NSObject,
            GCDAsyncSocketSSLPeerID: Data([1, 2, 3]) as NSObject,
            GCDAsyncSocketSSLProtocolVersionMin: SSLProtocol.tlsProtocol12.rawValue as NSNumber,
            GCDAsyncSocketSSLProtocolVersionMax as String: NSNumber(value: SSLProtocol.tlsProtocol13.rawValue),
            GCDAsyncSocketSSLCipherSuites: [NSNumber(value: TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384)] as NSArray,
            GCDAsyncSocketSSLALPN: ["http/1.1"] as NSObject,
            GCDAsyncSocketSSLSessionOptionFalseStart: kCFBooleanFalse,
            GCDAsyncSocketSSLSessionOptionSendOneByteRecord: 1 as NSObject,
            GCDAsyncSocketSSLDiffieHellmanParameters: NSData(),
        ]
    }

    /// As OSCKit gets the host of an address.
    package static func hostAndPort(_ address: Data) -> (host: NSString?, port: UInt16) {
        var host: NSString?
        var port: UInt16 = 0
        GCDAsyncUdpSocket.getHost(&host, port: &port, fromAddress: address)
        return (host, port)
    }

    package static func family(_ address: Data) -> (stream: sa_family_t, datagram: Int32) {
        var (stream, datagram): (sa_family_t, Int32) = (0, 0)
        _ = GCDAsyncSocket.getHost(nil, port: nil, family: &stream, fromAddress: address)
        _ = GCDAsyncUdpSocket.getHost(nil, port: nil, family: &datagram, fromAddress: address)
        return (stream, datagram)
    }

    package static func identity(pkcs12: Data, passphrase: String) -> (
        status: OSStatus, identity: SecIdentity?, chain: [SecCertificate]
    ) {
        var items: CFArray?
        let options = [kSecImportExportPassphrase as String: passphrase]
        let status = SecPKCS12Import(pkcs12 as CFData, options as CFDictionary, &items)
        guard status == errSecSuccess, let first = (items as? [[String: Any]])?.first else { return (status, nil, []) }
        guard let found = first[kSecImportItemIdentity as String] else { return (status, nil, []) }
        // Apple's types need the exclamation mark: `as?` to a type of Core Foundation always succeeds there.
        // swift-format-ignore: NeverForceUnwrap
        let identity = found as! SecIdentity
        let chain = first[kSecImportItemCertChain as String] as? [SecCertificate] ?? []
        return (status, identity, chain)
    }

    /// As settings are usually built from the items of a keychain or a PKCS#12 file. On Apple platforms,
    /// casts between types of Core Foundation are not checked.
    package static func certificates(_ identity: SecIdentity, _ chain: [SecCertificate]) -> [SecCertificate] {
        let rawItems = [identity] as [Any] + chain
        // swift-format-ignore: NeverForceUnwrap
        return rawItems as! [SecCertificate]
    }

    /// As pinning is usually written: evaluate, then compare the certificate.
    package static func isPinned(_ trust: SecTrust, to pinned: Data) -> Bool {
        var error: CFError?
        guard SecTrustEvaluateWithError(trust, &error) else { return false }
        guard let certificate = SecTrustGetCertificateAtIndex(trust, 0) else { return false }
        return SecCertificateCopyData(certificate) as Data == pinned
    }

    /// As pinning was written for old versions of iOS and macOS: compare the bytes of the certificate.
    package static func hasBytes(_ trust: SecTrust, of pinned: NSData) -> Bool {
        var result = SecTrustResultType.invalid
        guard SecTrustEvaluate(trust, &result) == noErr, result == .unspecified || result == .proceed else { return false }
        guard let certificate = SecTrustGetCertificateAtIndex(trust, 0) else { return false }
        let data = SecCertificateCopyData(certificate)
        let remote = NSData(bytes: CFDataGetBytePtr(data), length: CFDataGetLength(data))
        return remote.isEqual(to: pinned as Data)
    }

    /// The reasons of a failed evaluation, as programs log them.
    package static func reasons(_ trust: SecTrust) -> [String] {
        let properties = SecTrustCopyProperties(trust) as? [[String: AnyObject]] ?? []
        return properties.map { item in
            let title = item[kSecPropertyTypeTitle as String] as? String ?? ""
            return "\(title): \(item[kSecPropertyTypeError as String] as? String ?? "ok")"
        }
    }

    package static func describe(_ error: Error?) -> String {
        guard let error = error as NSError? else { return "none" }
        return "\(error.domain) \(error.code)"
    }

    /// The three ways in which programs inspect an error.
    package static func isClosed(_ error: Error?) -> (byCast: Bool, byCode: Bool, byNSError: Bool) {
        let byCast = (error as? GCDAsyncSocketError)?.code == GCDAsyncSocketError.closedError
        let byCode = (error as NSError?)?.code == GCDAsyncSocketError.Code.closedError.rawValue
        let byNSError = (error as? NSError).map { $0.domain == GCDAsyncSocketErrorDomain && $0.code == 7 } ?? false
        return (byCast, byCode, byNSError)
    }

    package static func refuse() throws {
        throw GCDAsyncUdpSocketError(.badParamError, userInfo: [NSLocalizedDescriptionKey: "the address is wrong"])
    }

    /// Runs immediately.
    package static func pooled() -> Int { autoreleasepool { 42 } }
}
