// swift-format-ignore-file: AlwaysUseLowerCamelCase, NeverUseImplicitlyUnwrappedOptionals

// The names of Core Foundation, Dispatch and the Objective-C runtime that socket code uses, and that
// Linux lacks. A Core Foundation type is the Foundation class that it is bridged to there, so that spellings
// such as `[identity] as CFArray` compile.

@_exported public import Dispatch
@_exported public import Foundation

/// The spelling of Objective-C for a queue.
public typealias dispatch_queue_t = DispatchQueue

/// An array of Core Foundation.
public typealias CFArray = NSArray
/// A Boolean of Core Foundation.
public typealias CFBoolean = NSNumber
/// Bytes of Core Foundation.
public typealias CFData = NSData
/// A dictionary of Core Foundation.
public typealias CFDictionary = NSDictionary
/// An error of Core Foundation.
public typealias CFError = NSError
/// An index or a count of Core Foundation.
public typealias CFIndex = Int
/// A number of Core Foundation.
public typealias CFNumber = NSNumber
/// A string of Core Foundation.
public typealias CFString = NSString
/// An object of Core Foundation.
public typealias CFTypeRef = AnyObject
/// The result of a function of the Security framework: `errSecSuccess` or another code.
public typealias OSStatus = Int32

/// The null of Core Foundation.
public typealias CFNull = NSNull
// Implicitly unwrapped, as on Apple platforms: a program may write `kCFBooleanTrue` and `kCFBooleanTrue!`.

/// The null object.
public var kCFNull: CFNull! { NSNull() }
/// True, as an object.
public var kCFBooleanTrue: CFBoolean! { NSNumber(value: true) }
/// False, as an object.
public var kCFBooleanFalse: CFBoolean! { NSNumber(value: false) }

/// The code of an error.
public func CFErrorGetCode(_ err: CFError) -> CFIndex { err.code }
/// The domain of an error.
public func CFErrorGetDomain(_ err: CFError) -> CFString! { err.domain as NSString }
/// The description of an error for a person.
public func CFErrorCopyDescription(_ err: CFError) -> CFString! { err.localizedDescription as NSString }

/// The number of elements of an array.
public func CFArrayGetCount(_ theArray: CFArray) -> CFIndex { theArray.count }

/// An allocator of Core Foundation. It allocates nothing here: pass `kCFAllocatorDefault` or nil.
public final class CFAllocator: Sendable {
    fileprivate init() {}
}

/// The allocator to pass where Core Foundation wants one.
public let kCFAllocatorDefault: CFAllocator! = CFAllocator()

/// A pointer to a variable of the caller's. Nothing is autoreleased on Linux, so it is a plain pointer.
public typealias AutoreleasingUnsafeMutablePointer = UnsafeMutablePointer

/// Calls `body`. Linux has no pool: objects go with their last reference.
public func autoreleasepool<Result>(invoking body: () throws -> Result) rethrows -> Result {
    try body()
}

/// A stream of Core Foundation, which Linux lacks.
@available(*, unavailable, message: "Linux has no Core Foundation streams: use the socket's own reads")
public final class CFReadStream {}

/// A stream of Core Foundation, which Linux lacks.
@available(*, unavailable, message: "Linux has no Core Foundation streams: use the socket's own writes")
public final class CFWriteStream {}

/// A Bonjour service, which Linux lacks.
@available(
    *, unavailable,
    message:
        "Linux has no NetService: resolve the service with Avahi or getaddrinfo, and call connect(toHost:onPort:) or connect(toAddress:)"
)
open class NetService: NSObject {}

/// A search for Bonjour services, which Linux lacks.
@available(*, unavailable, message: "Linux has no NetServiceBrowser: browse with Avahi, or send multicast with GCDAsyncUdpSocket")
open class NetServiceBrowser: NSObject {}

/// The callbacks of a Bonjour service, which Linux lacks.
@available(*, unavailable, message: "Linux has no NetService: leave these methods out")
public protocol NetServiceDelegate {}

/// The callbacks of a search for Bonjour services, which Linux lacks.
@available(*, unavailable, message: "Linux has no NetServiceBrowser: leave these methods out")
public protocol NetServiceBrowserDelegate {}

// MARK: - Keys of TLS settings

/// The name that the server's certificate must be for: a String.
public var kCFStreamSSLPeerName: CFString { "kCFStreamSSLPeerName" }
/// The identity of this side: an array with a `SecIdentity` first, and then the `SecCertificate`s of its
/// chain.
public var kCFStreamSSLCertificates: CFString { "kCFStreamSSLCertificates" }
/// Whether this side is the server: a Boolean.
public var kCFStreamSSLIsServer: CFString { "kCFStreamSSLIsServer" }
/// Refused, as on Apple platforms: a TLS setting that would accept any root.
public var kCFStreamSSLAllowsAnyRoot: CFString { "kCFStreamSSLAllowsAnyRoot" }
/// Refused, as on Apple platforms: a TLS setting that would accept expired roots.
public var kCFStreamSSLAllowsExpiredRoots: CFString { "kCFStreamSSLAllowsExpiredRoots" }
/// Refused, as on Apple platforms: a TLS setting that would accept expired certificates.
public var kCFStreamSSLAllowsExpiredCertificates: CFString { "kCFStreamSSLAllowsExpiredCertificates" }
/// Refused, as on Apple platforms: a TLS setting that would switch the verification off.
public var kCFStreamSSLValidatesCertificateChain: CFString { "kCFStreamSSLValidatesCertificateChain" }
/// Refused, as on Apple platforms: use `GCDAsyncSocketSSLProtocolVersionMin` and `…Max`.
public var kCFStreamSSLLevel: CFString { "kCFStreamSSLLevel" }

/// A value of `kCFStreamSSLLevel`.
public var kCFStreamSocketSecurityLevelNone: CFString { "kCFStreamSocketSecurityLevelNone" }
/// A value of `kCFStreamSSLLevel`.
public var kCFStreamSocketSecurityLevelTLSv1: CFString { "kCFStreamSocketSecurityLevelTLSv1" }
/// A value of `kCFStreamSSLLevel`.
public var kCFStreamSocketSecurityLevelNegotiatedSSL: CFString { "kCFStreamSocketSecurityLevelNegotiatedSSL" }

/// The number of the error domain "kCFStreamErrorDomainSSL".
public let kCFStreamErrorDomainSSL: Int32 = 3
/// The number of the error domain "kCFStreamErrorDomainNetDB".
public let kCFStreamErrorDomainNetDB: Int32 = 12
