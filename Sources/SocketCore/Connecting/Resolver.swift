// Rules of the resolver:
//  1. `getaddrinfo` blocks and cannot be cancelled. It must not run on an event loop, on a global queue, or
//     on a concurrent queue, which uses the threads of a global queue. On Linux, Swift tasks share these
//     threads, and there is only one per processor.
//  2. Each serial queue (a lane) performs one lookup at a time. When all lanes are busy, lookups are queued
//     in FIFO order.
//  3. A lookup that is cancelled while queued never starts, and its completion is never called. A lookup
//     that has started always runs to completion.

internal import CLinux
internal import Dispatch
internal import Glibc
internal import SocketBuffers

package struct HostQuery: Hashable, Sendable {
    package let host: String
    package let port: UInt16
    package let families: AddressFamilies

    package init(host: String, port: UInt16, families: AddressFamilies = .both) {
        self.host = host
        self.port = port
        self.families = families
    }

    /// The addresses of a literal, of `localhost` and `loopback`, and of names in the domain `localhost`
    /// (RFC 6761, section 6.3), which need no lookup. `nil` for any other name. Empty if the text is not a
    /// valid host, because the system's resolver might still accept it.
    fileprivate var knownAddresses: [SocketEndpoint]? {
        do throws(HostError) {
            if case .address(let address) = try HostText(host, port: port) { return [address] }
        } catch {
            return []
        }
        let name = host.hasSuffix(".") ? host.dropLast().lowercased() : host.lowercased()
        guard name == "localhost" || name == "loopback" || name.hasSuffix(".localhost") else { return nil }
        return ["127.0.0.1", "::1"].compactMap { SocketEndpoint(literal: $0, port: port) }.filter { families.allows($0.family) }
    }
}

package struct ResolveError: Error, Hashable, Sendable {
    package let query: HostQuery
    /// An `EAI_…` code from getaddrinfo(3).
    package let code: CInt
    /// The `errno` for `EAI_SYSTEM`; `nil` for any other code.
    package let errno: CInt?
    package var reason: String {
        errno.map { "\(String(cString: gai_strerror(code))): \(String(cString: strerror($0)))" }
            ?? String(cString: gai_strerror(code))
    }

    /// - Parameter errno: Stored only for `EAI_SYSTEM`.
    package init(_ query: HostQuery, code: CInt, errno: CInt = 0) {
        self.query = query
        self.code = code
        self.errno = code == EAI_SYSTEM ? errno : nil
    }

    /// Whether the resolver reported that no such address exists. `false` if the lookup itself failed.
    package var isAnswer: Bool {
        [EAI_NONAME, Self.noData, Self.addressFamily].contains(code)
    }

    // `EAI_NODATA` and `EAI_ADDRFAMILY`, which glibc declares only under _GNU_SOURCE.
    private static let noData: CInt = -5
    private static let addressFamily: CInt = -9
}

/// Resolves host names on a small number of dedicated threads.
package final class Resolver: Sendable {
    package typealias Answer = Result<[SocketEndpoint], ResolveError>
    package typealias Completion = @Sendable (Answer) -> Void

    package static let system = Resolver(concurrency: 8, lookUp: askSystem)

    private let lookUp: @Sendable (HostQuery) -> Answer
    private let backlog: Locked<Backlog>

    /// The queued lookups by ticket. Tickets are consecutive numbers.
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

    /// A lookup that may not have started yet.
    package struct Lookup: Sendable {
        fileprivate let resolver: Resolver
        fileprivate let ticket: UInt64

        /// Cancels the lookup if it is still queued. Returns `false` if it has started, in which case its
        /// completion has been or will be called.
        @discardableResult package func cancel() -> Bool {
            resolver.backlog.withLock { $0.waiting.removeValue(forKey: ticket) } != nil
        }
    }

    /// - Parameter lookUp: Finds the addresses. May block.
    package init(concurrency: Int, lookUp: @escaping @Sendable (HostQuery) -> Answer) {
        self.lookUp = lookUp
        backlog = Locked(Backlog(freeLanes: (0..<concurrency).map { DispatchQueue(label: "AsyncSockets.Resolver.\($0)") }))
    }

    /// Resolves a name or an address literal.
    ///
    /// If no lookup is needed, calls `completion` immediately and returns `nil`. Otherwise `completion` is
    /// called on a thread of the resolver.
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
    /// Looks up with `AI_ADDRCONFIG` first, which avoids a query for an IP version that this machine does
    /// not use. The flag ignores addresses on the loopback interface. The lookup is therefore repeated
    /// without the flag if no address is found.
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
            .compactMap { SocketEndpoint(addrinfo: $0.pointee) }
        return addresses.isEmpty ? .failure(ResolveError(query, code: EAI_NONAME)) : .success(addresses)
    }
}
