// swift-format-ignore-file: AlwaysUseLowerCamelCase, NeverUseImplicitlyUnwrappedOptionals

// The names from Core Foundation, Dispatch and the Objective-C runtime that socket code uses but Linux lacks.
// Each Core Foundation type is an alias for its bridged Foundation class, so that expressions such as
// `[identity] as CFArray` compile.

@_exported public import Dispatch
@_exported public import Foundation

/// Objective-C's name for a dispatch queue.
public typealias dispatch_queue_t = DispatchQueue

/// A Core Foundation array.
public typealias CFArray = NSArray
/// A Core Foundation Boolean.
public typealias CFBoolean = NSNumber
/// A Core Foundation byte buffer.
public typealias CFData = NSData
/// A Core Foundation dictionary.
public typealias CFDictionary = NSDictionary
/// A Core Foundation error.
public typealias CFError = NSError
/// A Core Foundation index or count.
public typealias CFIndex = Int
/// A Core Foundation number.
public typealias CFNumber = NSNumber
/// A Core Foundation string.
public typealias CFString = NSString
/// A Core Foundation object.
public typealias CFTypeRef = AnyObject
/// The result of a Security framework function: `errSecSuccess` or an error code.
public typealias OSStatus = Int32

/// The Core Foundation null object.
public typealias CFNull = NSNull
// Implicitly unwrapped as on Apple platforms, so that both `kCFBooleanTrue` and `kCFBooleanTrue!` compile.

/// The shared null object.
public var kCFNull: CFNull! { NSNull() }
/// The Boolean object for true.
public var kCFBooleanTrue: CFBoolean! { NSNumber(value: true) }
/// The Boolean object for false.
public var kCFBooleanFalse: CFBoolean! { NSNumber(value: false) }

/// Returns the code of an error.
public func CFErrorGetCode(_ err: CFError) -> CFIndex { err.code }
/// Returns the domain of an error.
public func CFErrorGetDomain(_ err: CFError) -> CFString! { err.domain as NSString }
/// Returns the localized description of an error.
public func CFErrorCopyDescription(_ err: CFError) -> CFString! { err.localizedDescription as NSString }

/// Returns a pointer to the bytes of a buffer, which is valid until the buffer is changed or released.
public func CFDataGetBytePtr(_ theData: CFData) -> UnsafePointer<UInt8>! {
    theData.bytes.assumingMemoryBound(to: UInt8.self)
}
/// Returns the number of bytes in a buffer.
public func CFDataGetLength(_ theData: CFData) -> CFIndex { theData.length }

/// Returns the number of elements in an array.
public func CFArrayGetCount(_ theArray: CFArray) -> CFIndex { theArray.count }

/// A Core Foundation allocator. It exists only for source compatibility: pass `kCFAllocatorDefault` or `nil`.
public final class CFAllocator: Sendable {
    fileprivate init() {}
}

/// The allocator to pass to functions with an allocator parameter.
public let kCFAllocatorDefault: CFAllocator! = CFAllocator()

/// A pointer to a caller's variable. Linux has no autoreleasing, so this is an ordinary pointer.
public typealias AutoreleasingUnsafeMutablePointer = UnsafeMutablePointer

/// Calls `body`. Linux has no autorelease pools: objects are freed when their last reference is released.
public func autoreleasepool<Result>(invoking body: () throws -> Result) rethrows -> Result {
    try body()
}

/// A Core Foundation read stream, which is not available on Linux.
@available(*, unavailable, message: "Linux has no Core Foundation streams: use the socket's read methods")
public final class CFReadStream {}

/// A Core Foundation write stream, which is not available on Linux.
@available(*, unavailable, message: "Linux has no Core Foundation streams: use the socket's write methods")
public final class CFWriteStream {}

/// A Bonjour service, which is not available on Linux.
@available(
    *, unavailable,
    message:
        "Linux has no NetService: resolve the service with Avahi or getaddrinfo, and call connect(toHost:onPort:) or connect(toAddress:)"
)
open class NetService: NSObject {}

/// A search for Bonjour services, which is not available on Linux.
@available(*, unavailable, message: "Linux has no NetServiceBrowser: browse with Avahi, or send multicast with GCDAsyncUdpSocket")
open class NetServiceBrowser: NSObject {}

/// The callbacks of a Bonjour service, which are not available on Linux.
@available(*, unavailable, message: "Linux has no NetService: remove these methods")
public protocol NetServiceDelegate {}

/// The callbacks of a search for Bonjour services, which are not available on Linux.
@available(*, unavailable, message: "Linux has no NetServiceBrowser: remove these methods")
public protocol NetServiceBrowserDelegate {}

// MARK: - TLS setting keys

/// The key for the name that the server's certificate must match, a String.
public var kCFStreamSSLPeerName: CFString { "kCFStreamSSLPeerName" }
/// The key for this side's identity: an array that contains a `SecIdentity`, followed by the
/// `SecCertificate`s of its chain.
public var kCFStreamSSLCertificates: CFString { "kCFStreamSSLCertificates" }
/// The key for a Boolean that states whether this side is the server.
public var kCFStreamSSLIsServer: CFString { "kCFStreamSSLIsServer" }
/// A rejected key, as on Apple platforms: the setting would accept any root.
public var kCFStreamSSLAllowsAnyRoot: CFString { "kCFStreamSSLAllowsAnyRoot" }
/// A rejected key, as on Apple platforms: the setting would accept expired roots.
public var kCFStreamSSLAllowsExpiredRoots: CFString { "kCFStreamSSLAllowsExpiredRoots" }
/// A rejected key, as on Apple platforms: the setting would accept expired certificates.
public var kCFStreamSSLAllowsExpiredCertificates: CFString { "kCFStreamSSLAllowsExpiredCertificates" }
/// A rejected key, as on Apple platforms: the setting would disable verification.
public var kCFStreamSSLValidatesCertificateChain: CFString { "kCFStreamSSLValidatesCertificateChain" }
/// A rejected key, as on Apple platforms. Use `GCDAsyncSocketSSLProtocolVersionMin` and `…Max`.
public var kCFStreamSSLLevel: CFString { "kCFStreamSSLLevel" }

/// A value for `kCFStreamSSLLevel`: no security.
public var kCFStreamSocketSecurityLevelNone: CFString { "kCFStreamSocketSecurityLevelNone" }
/// A value for `kCFStreamSSLLevel`: TLS 1.0.
public var kCFStreamSocketSecurityLevelTLSv1: CFString { "kCFStreamSocketSecurityLevelTLSv1" }
/// A value for `kCFStreamSSLLevel`: the highest version that both sides support.
public var kCFStreamSocketSecurityLevelNegotiatedSSL: CFString { "kCFStreamSocketSecurityLevelNegotiatedSSL" }

/// The numeric form of the error domain "kCFStreamErrorDomainSSL".
public let kCFStreamErrorDomainSSL: Int32 = 3
/// The numeric form of the error domain "kCFStreamErrorDomainNetDB".
public let kCFStreamErrorDomainNetDB: Int32 = 12
