internal import AsyncSockets
public import Foundation

// Class methods. They are not overridable: Swift allows that in the body of the class alone.
extension GCDAsyncUdpSocket {
    /// The host of an address, in numbers; nil for other data.
    public class func host(fromAddress address: Data) -> String? { SocketAddress(data: address)?.host }

    /// The port of an address; 0 for other data.
    public class func port(fromAddress address: Data) -> UInt16 { SocketAddress(data: address)?.port ?? 0 }

    /// The family of an address, `AF_INET` or `AF_INET6`; `AF_UNSPEC` for other data.
    public class func family(fromAddress address: Data) -> Int32 { InternetAddress.parts(of: address)?.family ?? AF_UNSPEC }

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
        family afPtr: UnsafeMutablePointer<Int32>?, fromAddress address: Data
    ) -> Bool {
        guard let (host, port, family) = InternetAddress.parts(of: address) else { return false }
        hostPtr?.pointee = host as NSString
        portPtr?.pointee = port
        afPtr?.pointee = family
        return true
    }
}
