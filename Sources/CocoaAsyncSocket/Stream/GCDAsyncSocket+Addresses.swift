internal import AsyncSockets
public import Foundation
internal import SocketCore

// Class methods. They are not overridable: Swift allows that in the body of the class alone.
extension GCDAsyncSocket {
    /// The addresses of a host, as `Data`. The call waits for the resolver.
    ///
    /// - Throws: An error of the domain "kCFStreamErrorDomainNetDB" with the code of getaddrinfo(3).
    public class func lookupHost(_ host: String, port: UInt16) throws -> NSMutableArray {
        do {
            return NSMutableArray(array: try HostLookup.addresses(of: host, port: port).map(\.data))
        } catch let error as ResolveError {
            throw NSError.lookup(error.code, error.reason)
        }
    }

    /// The host of an address, in numbers; nil for other data.
    public class func host(fromAddress address: Data) -> String? { SocketAddress(data: address)?.host }

    /// The port of an address; 0 for other data.
    public class func port(fromAddress address: Data) -> UInt16 { SocketAddress(data: address)?.port ?? 0 }

    /// Whether the data is an address of IPv4.
    public class func isIPv4Address(_ address: Data) -> Bool { SocketAddress(data: address)?.family == .ipv4 }

    /// Whether the data is an address of IPv6.
    public class func isIPv6Address(_ address: Data) -> Bool { SocketAddress(data: address)?.family == .ipv6 }

    /// Stores the host and the port of an address; false for other data.
    @discardableResult
    public class func getHost(
        _ hostPtr: AutoreleasingUnsafeMutablePointer<NSString?>?, port portPtr: UnsafeMutablePointer<UInt16>?,
        fromAddress address: Data
    ) -> Bool {
        getHost(hostPtr, port: portPtr, family: nil, fromAddress: address)
    }

    /// Stores the host, the port and the family of an address; false for other data.
    @discardableResult
    public class func getHost(
        _ hostPtr: AutoreleasingUnsafeMutablePointer<NSString?>?, port portPtr: UnsafeMutablePointer<UInt16>?,
        family afPtr: UnsafeMutablePointer<sa_family_t>?, fromAddress address: Data
    ) -> Bool {
        guard let (host, port, family) = InternetAddress.parts(of: address) else { return false }
        hostPtr?.pointee = host as NSString
        portPtr?.pointee = port
        afPtr?.pointee = sa_family_t(family)
        return true
    }

    /// Carriage return and line feed.
    public class func crlfData() -> Data { AsyncSocket.crlf }

    /// Carriage return.
    public class func crData() -> Data { AsyncSocket.cr }

    /// Line feed.
    public class func lfData() -> Data { AsyncSocket.lf }

    /// A zero byte.
    public class func zeroData() -> Data { AsyncSocket.zero }
}

/// An address of IPv4 or IPv6 in a Data.
enum InternetAddress {
    static func parts(of data: Data) -> (host: String, port: UInt16, family: Int32)? {
        guard let address = SocketAddress(data: data), let host = address.host, let port = address.port else { return nil }
        return (host, port, address.family == .ipv4 ? AF_INET : AF_INET6)
    }
}
