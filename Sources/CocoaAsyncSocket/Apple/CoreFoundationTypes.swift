// swift-format-ignore-file: AlwaysUseLowerCamelCase, NeverUseImplicitlyUnwrappedOptionals

// The numbers of types.

/// The number of a type, the same for all its objects.
public typealias CFTypeID = UInt
/// The number of the type of an object.
public func CFGetTypeID(_ cf: CFTypeRef) -> CFTypeID { UInt(bitPattern: ObjectIdentifier(type(of: cf))) }
/// The number of `SecCertificate`.
public func SecCertificateGetTypeID() -> CFTypeID { UInt(bitPattern: ObjectIdentifier(SecCertificate.self)) }
/// The number of `SecIdentity`.
public func SecIdentityGetTypeID() -> CFTypeID { UInt(bitPattern: ObjectIdentifier(SecIdentity.self)) }
/// The number of `SecKey`.
public func SecKeyGetTypeID() -> CFTypeID { UInt(bitPattern: ObjectIdentifier(SecKey.self)) }
/// The number of `SecTrust`.
public func SecTrustGetTypeID() -> CFTypeID { UInt(bitPattern: ObjectIdentifier(SecTrust.self)) }
