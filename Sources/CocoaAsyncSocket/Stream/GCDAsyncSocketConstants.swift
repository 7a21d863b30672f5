// The names are the ones that programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

/// The name of exceptions of the original, which are traps here.
public let GCDAsyncSocketException = "GCDAsyncSocketException"
/// The label of the original's socket queues.
public let GCDAsyncSocketQueueName = "GCDAsyncSocket"
/// The name of the original's thread of Core Foundation streams.
public let GCDAsyncSocketThreadName = "GCDAsyncSocket-CFStream"
/// The context of the original's log messages, for CocoaLumberjack.
public var GCDAsyncSocketLoggingContext: Int32 { 65535 }

// MARK: - Keys of TLS settings

/// Whether the delegate decides about the server's certificate: a Boolean. See
/// `socket(_:didReceive:completionHandler:)`.
public let GCDAsyncSocketManuallyEvaluateTrust = "GCDAsyncSocketManuallyEvaluateTrust"
/// Which sessions may be resumed: the ones of connections with an equal value, a Data.
public let GCDAsyncSocketSSLPeerID = "GCDAsyncSocketSSLPeerID"
/// The oldest version of TLS: a number of `SSLProtocol`. Versions before 1.2 mean 1.2.
public let GCDAsyncSocketSSLProtocolVersionMin = "GCDAsyncSocketSSLProtocolVersionMin"
/// The newest version of TLS: a number of `SSLProtocol`, at least 1.2.
public let GCDAsyncSocketSSLProtocolVersionMax = "GCDAsyncSocketSSLProtocolVersionMax"
/// A Boolean without effect: OpenSSL has no False Start.
public let GCDAsyncSocketSSLSessionOptionFalseStart = "GCDAsyncSocketSSLSessionOptionFalseStart"
/// A Boolean without effect: it is about versions before TLS 1.1.
public let GCDAsyncSocketSSLSessionOptionSendOneByteRecord = "GCDAsyncSocketSSLSessionOptionSendOneByteRecord"
/// The cipher suites that may be used: an array of `SSLCipherSuite` numbers.
public let GCDAsyncSocketSSLCipherSuites = "GCDAsyncSocketSSLCipherSuites"
/// Application protocols, the preferred one first: an array of String.
public let GCDAsyncSocketSSLALPN = "GCDAsyncSocketSSLALPN"
/// A Data without effect: no key exchange here uses a finite field.
public let GCDAsyncSocketSSLDiffieHellmanParameters = "GCDAsyncSocketSSLDiffieHellmanParameters"
/// The same as `kCFStreamSSLPeerName`.
public let GCDAsyncSocketSSLPeerName = "kCFStreamSSLPeerName"
/// The same as `kCFStreamSSLCertificates`.
public let GCDAsyncSocketSSLCertificates = "kCFStreamSSLCertificates"
/// The same as `kCFStreamSSLIsServer`.
public let GCDAsyncSocketSSLIsServer = "kCFStreamSSLIsServer"
/// A Boolean without effect: Linux has no Core Foundation streams.
public let GCDAsyncSocketUseCFStreamForTLS = "GCDAsyncSocketUseCFStreamForTLS"

/// Not in the original: whether a server asks for a client certificate, a number of `SSLAuthenticate`.
public let GCDAsyncSocketSSLClientAuthentication = "GCDAsyncSocketSSLClientAuthentication"
/// Not in the original: the roots that the peer's certificate must lead to instead of the system's, an array
/// of `SecCertificate`.
public let GCDAsyncSocketSSLAnchorCertificates = "GCDAsyncSocketSSLAnchorCertificates"
