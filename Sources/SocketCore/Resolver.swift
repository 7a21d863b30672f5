internal import CLinux
internal import Dispatch
internal import Glibc
internal import SocketBuffers

/// A host name that has no usable address, and why.
package struct ResolveError: Error, Sendable {
    package let host: String
    /// `EAI_…` of getaddrinfo(3).
    package let code: CInt
    package var reason: String { String(cString: gai_strerror(code)) }
}

/// Host names into addresses, on a few threads of its own.
///
/// `getaddrinfo` blocks and cannot be cancelled. It never runs on an event loop or on a global queue, and at most
/// `Resolver.concurrency` calls are under way; the others wait in line.
package enum Resolver {
    package typealias Completion = @Sendable (Result<[SocketAddress], ResolveError>) -> Void

    private static let concurrency = 8
    private static let queue = DispatchQueue(label: "AsyncSockets.Resolver", attributes: .concurrent)
    private static let line = Locked(Line())

    private struct Line {
        var running = 0
        var waiting: [@Sendable () -> Void] = []
    }

    /// Resolves `host`, a name or an address literal, and calls `completion`: at once for a literal and for `localhost`
    /// (RFC 6761, 6.3), from a resolver thread for any other name.
    package static func resolve(_ host: String, port: UInt16, completion: @escaping Completion) {
        if let literal = SocketAddress(literal: host, port: port) { return completion(.success([literal])) }
        if host == "localhost" || host == "loopback" {
            return completion(.success(["127.0.0.1", "::1"].compactMap { SocketAddress(literal: $0, port: port) }))
        }
        enqueue { completion(lookUp(host, port: port)) }
    }

    private static func enqueue(_ lookUp: @escaping @Sendable () -> Void) {
        let mayRun = line.withLock { line in
            guard line.running < concurrency else {
                line.waiting.append(lookUp)
                return false
            }
            line.running += 1
            return true
        }
        if mayRun { queue.async { work(startingWith: lookUp) } }
    }

    private static func work(startingWith first: @Sendable () -> Void) {
        first()
        while let next = takeNext() { next() }
    }

    private static func takeNext() -> (@Sendable () -> Void)? {
        line.withLock { line in
            guard !line.waiting.isEmpty else {
                line.running -= 1
                return nil
            }
            return line.waiting.removeFirst()
        }
    }

    private static func lookUp(_ host: String, port: UInt16) -> Result<[SocketAddress], ResolveError> {
        var hints = addrinfo()
        hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
        hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(host, String(port), &hints, &list)
        guard code == 0 else { return .failure(ResolveError(host: host, code: code)) }
        defer { freeaddrinfo(list) }
        let addresses = sequence(first: list, next: { $0?.pointee.ai_next }).compactMap { $0 }
            .compactMap { SocketAddress(addrinfo: $0.pointee) }
        return addresses.isEmpty ? .failure(ResolveError(host: host, code: EAI_NONAME)) : .success(addresses)
    }
}
