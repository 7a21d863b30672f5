// Rules of SOCKS 5 (RFC 1928, RFC 1929):
//  1. The client offers "no authentication required" and, if it has credentials, "username/password". The
//     proxy must choose one of these methods.
//  2. Each client message is sent after the reply to the previous message. Each reply has exactly the
//     length that the RFC specifies.
//  3. A version, reserved byte or address type that the RFC does not define fails the negotiation at that
//     byte. So does a refusal.
//  4. The bound address in the reply (BND.ADDR) is ignored, because it may belong to a host on the proxy's
//     internal network.

internal import SocketBuffers

/// The client side of a SOCKS 5 negotiation.
package struct SOCKS5Negotiation: Sendable {
    private enum Awaited {
        case method
        case authentication
        case connection
    }

    private enum Method {
        static let noAuthentication: UInt8 = 0x00
        static let password: UInt8 = 0x02
        static let noneAcceptable: UInt8 = 0xff
    }

    private static let version: UInt8 = 5
    /// The version of the username/password subnegotiation (RFC 1929).
    private static let authenticationVersion: UInt8 = 1

    var output: ArraySlice<UInt8>
    private var awaited = Awaited.method
    private let request: [UInt8]
    private let authentication: [UInt8]?

    init(target: ProxyTarget, credentials: SocketProxy.Credentials?) throws(ProxyFailure) {
        request = Self.request(for: target)
        authentication = try Self.authentication(with: credentials)
        let methods = authentication == nil ? [Method.noAuthentication] : [Method.noAuthentication, Method.password]
        output = [Self.version, UInt8(methods.count)] + methods
    }

    /// Consumes complete replies. Returns `true` once the tunnel is established.
    mutating func isEstablished(by buffer: PreBuffer) throws(ProxyFailure) -> Bool {
        while output.isEmpty {
            switch awaited {
            case .method:
                guard let method = try takeMethod(from: buffer) else { return false }
                try proceed(with: method)
            case .authentication:
                guard try takeAuthenticationReply(from: buffer) else { return false }
                askForConnection()
            case .connection:
                return try takeConnectionReply(from: buffer)
            }
        }
        return false
    }

    // MARK: - The requests

    private static func request(for target: ProxyTarget) -> [UInt8] {
        let (type, address, port): (AddressType, [UInt8], UInt16)
        switch target {
        case .name(let name, let number):
            (type, address, port) = (.name, [UInt8(truncatingIfNeeded: name.utf8.count)] + name.utf8, number)
        case .address(let socketAddress):
            (type, address) = (socketAddress.family == .ipv6 ? .ipv6 : .ipv4, socketAddress.hostBytes)
            port = socketAddress.port ?? 0
        }
        let connect: UInt8 = 1
        return [version, connect, 0, type.rawValue] + address + [UInt8(port >> 8), UInt8(port & 0xff)]
    }

    private static func authentication(with credentials: SocketProxy.Credentials?) throws(ProxyFailure) -> [UInt8]? {
        guard let credentials else { return nil }
        let (name, password) = (Array(credentials.username.utf8), Array(credentials.password.utf8))
        guard (1...255).contains(name.count), (1...255).contains(password.count) else {
            throw ProxyFailure(.invalid, "the user name and password for a SOCKS proxy must have 1 to 255 bytes each")
        }
        guard !name.contains(0), !password.contains(0) else {
            throw ProxyFailure(.invalid, "the proxy user name or password contains a zero byte")
        }
        return [authenticationVersion, UInt8(name.count)] + name + [UInt8(password.count)] + password
    }

    private mutating func proceed(with method: UInt8) throws(ProxyFailure) {
        switch (method, authentication) {
        case (Method.noAuthentication, _):
            askForConnection()
        case (Method.password, let authentication?):
            output += authentication
            awaited = .authentication
        case (Method.noneAcceptable, nil):
            throw ProxyFailure(.authenticationRequired, "the proxy requires authentication: set the proxy's credentials")
        case (Method.noneAcceptable, _):
            throw ProxyFailure(.authenticationRequired, "the proxy does not accept a user name and password")
        default:
            throw ProxyFailure(.misbehaved, "the proxy chose authentication method \(method), which was not offered")
        }
    }

    private mutating func askForConnection() {
        output += request
        awaited = .connection
    }

    // MARK: - The replies

    private func takeMethod(from buffer: PreBuffer) throws(ProxyFailure) -> UInt8? {
        let bytes = buffer.readableBytes
        try check(bytes, at: 0, is: Self.version, "the first byte of the response")
        guard bytes.count >= 2 else { return nil }
        let method = bytes[1]
        buffer.consume(2)
        return method
    }

    private func takeAuthenticationReply(from buffer: PreBuffer) throws(ProxyFailure) -> Bool {
        let bytes = buffer.readableBytes
        try check(bytes, at: 0, is: Self.authenticationVersion, "the version in the authentication reply")
        guard bytes.count >= 2 else { return false }
        guard bytes[1] == 0 else {
            throw ProxyFailure(.authenticationRequired, "the proxy rejected the user name and password (status \(bytes[1]))")
        }
        buffer.consume(2)
        return true
    }

    private func takeConnectionReply(from buffer: PreBuffer) throws(ProxyFailure) -> Bool {
        let bytes = buffer.readableBytes
        try check(bytes, at: 0, is: Self.version, "the version in the reply")
        if bytes.count >= 2, bytes[1] != 0 { throw ProxyFailure(.refused, "the proxy replied \(Self.replyName(bytes[1]))") }
        try check(bytes, at: 2, is: 0, "the reserved byte in the reply")
        guard let length = try replyLength(bytes), bytes.count >= length else { return false }
        buffer.consume(length)
        return true
    }

    private func check(
        _ bytes: UnsafeRawBufferPointer, at index: Int, is expected: UInt8, _ name: String
    ) throws(ProxyFailure) {
        guard bytes.count > index, bytes[index] != expected else { return }
        throw ProxyFailure(.misbehaved, "\(name) is \(bytes[index]) instead of \(expected): the proxy does not speak SOCKS 5")
    }

    private enum AddressType: UInt8 {
        case ipv4 = 1
        case name = 3
        case ipv6 = 4
    }

    /// Returns the length of the whole reply, or `nil` while it is unknown.
    private func replyLength(_ bytes: UnsafeRawBufferPointer) throws(ProxyFailure) -> Int? {
        guard bytes.count >= 4 else { return nil }
        let header = 4, port = 2
        switch AddressType(rawValue: bytes[3]) {
        case .ipv4: return header + 4 + port
        case .ipv6: return header + 16 + port
        case .name: return bytes.count > header ? header + 1 + Int(bytes[header]) + port : nil
        case nil: throw ProxyFailure(.misbehaved, "the reply contains the unknown address type \(bytes[3])")
        }
    }

    /// Returns the text for a reply code in RFC 1928, section 6.
    private static func replyName(_ code: UInt8) -> String {
        let names = [
            "general SOCKS server failure", "connection not allowed by ruleset", "Network unreachable", "Host unreachable",
            "Connection refused", "TTL expired", "Command not supported", "Address type not supported",
        ]
        let name = names.indices.contains(Int(code) - 1) ? names[Int(code) - 1] : "unassigned"
        return "\"\(name)\" (reply code \(code))"
    }
}
