internal import AsyncSockets
public import Foundation

// Class methods. They cannot be overridden, because they are not declared in the class body.
extension GCDAsyncUdpSocket {
    /// Returns the host of an address in numeric form, or `nil` if the data is not an address.
    public class func host(fromAddress address: Data) -> String? { SocketEndpoint(data: address)?.host }

    /// Returns the port of an address, or 0 if the data is not an address.
    public class func port(fromAddress address: Data) -> UInt16 { SocketEndpoint(data: address)?.port ?? 0 }

    /// Returns the family of an address, `AF_INET` or `AF_INET6`, or `AF_UNSPEC` for any other data.
    public class func family(fromAddress address: Data) -> Int32 { InternetAddress.parts(of: address)?.family ?? AF_UNSPEC }

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
        family afPtr: UnsafeMutablePointer<Int32>?, fromAddress address: Data
    ) -> Bool {
        guard let (host, port, family) = InternetAddress.parts(of: address) else { return false }
        hostPtr?.pointee = host as NSString
        portPtr?.pointee = port
        afPtr?.pointee = family
        return true
    }
}
