internal import AsyncSockets
public import Foundation
internal import SocketCore

// Class methods. They cannot be overridden, because they are not declared in the class body.
extension GCDAsyncSocket {
    /// Returns the addresses of a host, as `Data`. Blocks until the lookup is complete.
    ///
    /// - Throws: An error in the domain "kCFStreamErrorDomainNetDB" with the code from getaddrinfo(3).
    public class func lookupHost(_ host: String, port: UInt16) throws -> NSMutableArray {
        do {
            return NSMutableArray(array: try HostLookup.addresses(of: host, port: port).map(\.data))
        } catch let error as ResolveError {
            throw NSError.lookup(error.code, error.reason)
        }
    }

    /// Returns the host of an address in numeric form, or `nil` if the data is not an address.
    public class func host(fromAddress address: Data) -> String? { SocketEndpoint(data: address)?.host }

    /// Returns the port of an address, or 0 if the data is not an address.
    public class func port(fromAddress address: Data) -> UInt16 { SocketEndpoint(data: address)?.port ?? 0 }

    /// Returns whether the data is an IPv4 address.
    public class func isIPv4Address(_ address: Data) -> Bool { SocketEndpoint(data: address)?.family == .ipv4 }

    /// Returns whether the data is an IPv6 address.
    public class func isIPv6Address(_ address: Data) -> Bool { SocketEndpoint(data: address)?.family == .ipv6 }

    /// Stores the host and the port of an address. Returns false if the data is not an address.
    @discardableResult
    public class func getHost(
        _ hostPtr: AutoreleasingUnsafeMutablePointer<NSString?>?, port portPtr: UnsafeMutablePointer<UInt16>?,
        fromAddress address: Data
    ) -> Bool {
        getHost(hostPtr, port: portPtr, family: nil, fromAddress: address)
    }

    /// Stores the host, the port and the family of an address. Returns false if the data is not an address.
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

    /// Returns a carriage return and a line feed.
    public class func crlfData() -> Data { AsyncSocket.crlf }

    /// Returns a carriage return.
    public class func crData() -> Data { AsyncSocket.cr }

    /// Returns a line feed.
    public class func lfData() -> Data { AsyncSocket.lf }

    /// Returns a zero byte.
    public class func zeroData() -> Data { AsyncSocket.zero }
}

enum InternetAddress {
    static func parts(of data: Data) -> (host: String, port: UInt16, family: Int32)? {
        guard let address = SocketEndpoint(data: data), let host = address.host, let port = address.port else { return nil }
        return (host, port, address.family == .ipv4 ? AF_INET : AF_INET6)
    }
}
