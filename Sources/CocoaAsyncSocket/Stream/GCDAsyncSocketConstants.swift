// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

/// The name of CocoaAsyncSocket's exceptions. This library traps instead of raising them.
public let GCDAsyncSocketException = "GCDAsyncSocketException"
/// The label of CocoaAsyncSocket's socket queues.
public let GCDAsyncSocketQueueName = "GCDAsyncSocket"
/// The name of CocoaAsyncSocket's thread for Core Foundation streams.
public let GCDAsyncSocketThreadName = "GCDAsyncSocket-CFStream"
/// The CocoaLumberjack context of CocoaAsyncSocket's log messages.
public var GCDAsyncSocketLoggingContext: Int32 { 65535 }

// MARK: - TLS setting keys

/// A Boolean that states whether the delegate evaluates the server's certificate. See
/// `socket(_:didReceive:completionHandler:)`.
public let GCDAsyncSocketManuallyEvaluateTrust = "GCDAsyncSocketManuallyEvaluateTrust"
/// An identifier for session resumption, a Data. Only sessions from connections with the same identifier are
/// resumed.
public let GCDAsyncSocketSSLPeerID = "GCDAsyncSocketSSLPeerID"
/// The oldest allowed TLS version, an `SSLProtocol` number. Versions older than TLS 1.2 are raised to TLS
/// 1.2.
public let GCDAsyncSocketSSLProtocolVersionMin = "GCDAsyncSocketSSLProtocolVersionMin"
/// The newest allowed TLS version, an `SSLProtocol` number. It must be TLS 1.2 or newer.
public let GCDAsyncSocketSSLProtocolVersionMax = "GCDAsyncSocketSSLProtocolVersionMax"
/// A Boolean that has no effect, because OpenSSL does not support False Start.
public let GCDAsyncSocketSSLSessionOptionFalseStart = "GCDAsyncSocketSSLSessionOptionFalseStart"
/// A Boolean that has no effect, because it only concerns versions before TLS 1.1.
public let GCDAsyncSocketSSLSessionOptionSendOneByteRecord = "GCDAsyncSocketSSLSessionOptionSendOneByteRecord"
/// The allowed cipher suites, an array of `SSLCipherSuite` numbers.
public let GCDAsyncSocketSSLCipherSuites = "GCDAsyncSocketSSLCipherSuites"
/// The application protocols, an array of String, most preferred first.
public let GCDAsyncSocketSSLALPN = "GCDAsyncSocketSSLALPN"
/// A Data that has no effect, because this library uses no finite-field key exchange.
public let GCDAsyncSocketSSLDiffieHellmanParameters = "GCDAsyncSocketSSLDiffieHellmanParameters"
/// The same key as `kCFStreamSSLPeerName`.
public let GCDAsyncSocketSSLPeerName = "kCFStreamSSLPeerName"
/// The same key as `kCFStreamSSLCertificates`.
public let GCDAsyncSocketSSLCertificates = "kCFStreamSSLCertificates"
/// The same key as `kCFStreamSSLIsServer`.
public let GCDAsyncSocketSSLIsServer = "kCFStreamSSLIsServer"
/// A Boolean that has no effect, because Linux has no Core Foundation streams.
public let GCDAsyncSocketUseCFStreamForTLS = "GCDAsyncSocketUseCFStreamForTLS"

/// An `SSLAuthenticate` number that states whether a server requests a client certificate. Not available on
/// Apple platforms.
public let GCDAsyncSocketSSLClientAuthentication = "GCDAsyncSocketSSLClientAuthentication"
/// The same key, under the name that forks of CocoaAsyncSocket use.
public let GCDAsyncSocketSSLClientSideAuthenticate = GCDAsyncSocketSSLClientAuthentication
/// The roots to trust instead of the system's roots, an array of `SecCertificate`. Not available on Apple
/// platforms.
public let GCDAsyncSocketSSLAnchorCertificates = "GCDAsyncSocketSSLAnchorCertificates"
