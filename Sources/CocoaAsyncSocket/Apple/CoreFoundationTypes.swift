// swift-format-ignore-file: AlwaysUseLowerCamelCase, NeverUseImplicitlyUnwrappedOptionals

internal import Foundation

/// A type identifier, shared by all objects of a type.
public typealias CFTypeID = UInt
/// Returns the type identifier of an object.
public func CFGetTypeID(_ cf: CFTypeRef) -> CFTypeID { UInt(bitPattern: ObjectIdentifier(type(of: cf))) }
/// Returns the type identifier of `SecCertificate`.
public func SecCertificateGetTypeID() -> CFTypeID { UInt(bitPattern: ObjectIdentifier(SecCertificate.self)) }
/// Returns the type identifier of `SecIdentity`.
public func SecIdentityGetTypeID() -> CFTypeID { UInt(bitPattern: ObjectIdentifier(SecIdentity.self)) }
/// Returns the type identifier of `SecKey`.
public func SecKeyGetTypeID() -> CFTypeID { UInt(bitPattern: ObjectIdentifier(SecKey.self)) }
/// Returns the type identifier of `SecTrust`.
public func SecTrustGetTypeID() -> CFTypeID { UInt(bitPattern: ObjectIdentifier(SecTrust.self)) }
/// Returns whether two objects are equal, as decided by their `isEqual(_:)`.
public func CFEqual(_ cf1: CFTypeRef!, _ cf2: CFTypeRef!) -> Bool {
    guard let cf1, let cf2 else { return cf1 === cf2 }
    return cf1 === cf2 || (cf1 as? NSObject)?.isEqual(cf2) == true
}

/// A time in seconds since 1 January 2001.
public typealias CFAbsoluteTime = Double
/// Returns the current time.
public func CFAbsoluteTimeGetCurrent() -> CFAbsoluteTime { Date().timeIntervalSinceReferenceDate }
