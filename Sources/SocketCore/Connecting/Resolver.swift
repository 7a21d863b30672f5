// Rules of the resolver:
//  1. `getaddrinfo` blocks and cannot be cancelled. So it never runs on an event loop, on a global queue or
//     on a concurrent queue, which uses the threads of a global one: on Linux the tasks of Swift share them,
//     and there are only as many as processors.
//  2. Each serial queue, a lane, does one lookup at a time. When no lane is free the others wait, first come,
//     first served.
//  3. A lookup that is cancelled while it waits never begins, and its completion is never called. A lookup
//     that has begun ends by itself.

internal import CLinux
internal import Dispatch
internal import Glibc
internal import SocketBuffers

/// Which addresses of a host are wanted.
package struct HostQuery: Hashable, Sendable {
    package let host: String
    package let port: UInt16
    package let families: AddressFamilies

    package init(host: String, port: UInt16, families: AddressFamilies = .both) {
        self.host = host
        self.port = port
        self.families = families
    }

    /// The addresses that are known without a lookup: of a literal, of `localhost`, and of the names below it
    /// (RFC 6761, section 6.3); nil for other names. A text that is not a host has none, since the system's
    /// resolver could take it for one.
    fileprivate var knownAddresses: [SocketAddress]? {
        do throws(HostError) {
            if case .address(let address) = try HostText(host, port: port) { return [address] }
        } catch {
            return []
        }
        let name = host.hasSuffix(".") ? host.dropLast().lowercased() : host.lowercased()
        guard name == "localhost" || name == "loopback" || name.hasSuffix(".localhost") else { return nil }
        return ["127.0.0.1", "::1"].compactMap { SocketAddress(literal: $0, port: port) }.filter { families.allows($0.family) }
    }
}

/// Why a host name has no usable address.
package struct ResolveError: Error, Hashable, Sendable {
    package let query: HostQuery
    /// `EAI_…` of getaddrinfo(3).
    package let code: CInt
    /// The `errno` that goes with `EAI_SYSTEM`; nil for other codes.
    package let errno: CInt?
    package var reason: String {
        errno.map { "\(String(cString: gai_strerror(code))): \(String(cString: strerror($0)))" }
            ?? String(cString: gai_strerror(code))
    }

    /// - Parameter errno: Kept with `EAI_SYSTEM` only.
    package init(_ query: HostQuery, code: CInt, errno: CInt = 0) {
        self.query = query
        self.code = code
        self.errno = code == EAI_SYSTEM ? errno : nil
    }

    /// True when the resolver says that there is no such address; false when it could not find out.
    package var isAnswer: Bool {
        [EAI_NONAME, Self.noData, Self.addressFamily].contains(code)
    }

    // `EAI_NODATA` and `EAI_ADDRFAMILY`, which glibc declares under _GNU_SOURCE only.
    private static let noData: CInt = -5
    private static let addressFamily: CInt = -9
}

/// Turns host names into addresses, on a few threads of its own.
package final class Resolver: Sendable {
    package typealias Answer = Result<[SocketAddress], ResolveError>
    package typealias Completion = @Sendable (Answer) -> Void

    /// Asks the system.
    package static let system = Resolver(concurrency: 8, lookUp: askSystem)

    private let lookUp: @Sendable (HostQuery) -> Answer
    private let backlog: Locked<Backlog>

    /// The lookups that wait, by their tickets, which grow by one.
    private struct Backlog {
        var freeLanes: [DispatchQueue]
        var waiting: [UInt64: @Sendable () -> Void] = [:]
        var nextTicket: UInt64 = 0
        var firstTicket: UInt64 = 0

        mutating func takeFirst() -> (@Sendable () -> Void)? {
            while firstTicket < nextTicket {
                defer { firstTicket += 1 }
                if let work = waiting.removeValue(forKey: firstTicket) { return work }
            }
            return nil
        }
    }

    /// A lookup that may still wait.
    package struct Lookup: Sendable {
        fileprivate let resolver: Resolver
        fileprivate let ticket: UInt64

        /// Has the lookup not begin. False when it has begun: its completion has been called, or will be.
        @discardableResult package func cancel() -> Bool {
            resolver.backlog.withLock { $0.waiting.removeValue(forKey: ticket) } != nil
        }
    }

    /// - Parameter lookUp: Finds the addresses; it may block.
    package init(concurrency: Int, lookUp: @escaping @Sendable (HostQuery) -> Answer) {
        self.lookUp = lookUp
        backlog = Locked(Backlog(freeLanes: (0..<concurrency).map { DispatchQueue(label: "AsyncSockets.Resolver.\($0)") }))
    }

    /// Resolves a name or an address literal. If no lookup is needed it calls `completion` at once, and
    /// returns nil; otherwise a thread of the resolver calls it.
    package func resolve(_ query: HostQuery, completion: @escaping Completion) -> Lookup? {
        if let known = query.knownAddresses {
            completion(known.isEmpty ? .failure(ResolveError(query, code: EAI_NONAME)) : .success(known))
            return nil
        }
        let (ticket, lane) = backlog.withLock { backlog in
            backlog.waiting[backlog.nextTicket] = { [lookUp] in completion(lookUp(query)) }
            defer { backlog.nextTicket += 1 }
            return (backlog.nextTicket, backlog.freeLanes.popLast())
        }
        if let lane { lane.async { self.work(on: lane) } }
        return Lookup(resolver: self, ticket: ticket)
    }

    private func work(on lane: DispatchQueue) {
        while let next = takeNext(on: lane) { next() }
    }

    private func takeNext(on lane: DispatchQueue) -> (@Sendable () -> Void)? {
        backlog.withLock { backlog in
            let next = backlog.takeFirst()
            if next == nil { backlog.freeLanes.append(lane) }
            return next
        }
    }
}

// MARK: - The system's resolver

extension Resolver {
    /// `AI_ADDRCONFIG` spares a machine with one IP version the lookup of the other, but overlooks addresses
    /// that are only on the loopback interface: a name without an answer is looked up again without it.
    private static func askSystem(_ query: HostQuery) -> Answer {
        let answer = askSystem(query, flags: AI_ADDRCONFIG)
        guard case .failure(let error) = answer, error.isAnswer else { return answer }
        return askSystem(query, flags: 0)
    }

    private static func askSystem(_ query: HostQuery, flags: CInt) -> Answer {
        var hints = addrinfo()
        hints.ai_family = query.families == .ipv4 ? AF_INET : query.families == .ipv6 ? AF_INET6 : AF_UNSPEC
        hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
        hints.ai_flags = flags | AI_NUMERICSERV
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(query.host, String(query.port), &hints, &list)
        guard code == 0 else { return .failure(ResolveError(query, code: code, errno: errno)) }
        defer { freeaddrinfo(list) }
        let addresses = sequence(first: list, next: { $0?.pointee.ai_next }).compactMap { $0 }
            .compactMap { SocketAddress(addrinfo: $0.pointee) }
        return addresses.isEmpty ? .failure(ResolveError(query, code: EAI_NONAME)) : .success(addresses)
    }
}
