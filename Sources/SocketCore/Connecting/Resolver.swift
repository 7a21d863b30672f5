// Rules of the resolver:
//  1. `getaddrinfo` blocks and cannot be cancelled: it never runs on an event loop or on a global queue, nor
//     on a concurrent queue, which has its threads from a global one: on Linux the tasks of Swift share them,
//     and there are only as many as processors.
//  2. Each serial queue, a lane, does one lookup at a time. With all lanes taken the others wait in line,
//     first come, first served.
//  3. A lookup that is cancelled while it waits is never begun, and its completion is never called. One that
//     is under way ends by itself.

internal import CLinux
internal import Dispatch
internal import Glibc
internal import SocketBuffers

/// What a host name is asked for.
package struct HostQuery: Hashable, Sendable {
    package let host: String
    package let port: UInt16
    package let families: AddressFamilies

    package init(host: String, port: UInt16, families: AddressFamilies = .both) {
        self.host = host
        self.port = port
        self.families = families
    }

    /// The addresses that are known without asking anybody: those of a literal, and of `localhost` and the
    /// names below it (RFC 6761, section 6.3). None for a text that is no host: the system's resolver could
    /// take it for one.
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

/// A host name that has no usable address, and why.
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

    /// - Parameter errno: Counts with `EAI_SYSTEM` only.
    package init(_ query: HostQuery, code: CInt, errno: CInt = 0) {
        self.query = query
        self.code = code
        self.errno = code == EAI_SYSTEM ? errno : nil
    }

    /// True when the resolver has answered, and knows no such address; false when it could not tell.
    package var isAnswer: Bool {
        [EAI_NONAME, Self.noData, Self.addressFamily].contains(code)
    }

    // `EAI_NODATA` and `EAI_ADDRFAMILY`, which glibc declares under _GNU_SOURCE only.
    private static let noData: CInt = -5
    private static let addressFamily: CInt = -9
}

/// Host names into addresses, on a few threads of its own.
package final class Resolver: Sendable {
    package typealias Answer = Result<[SocketAddress], ResolveError>
    package typealias Completion = @Sendable (Answer) -> Void

    /// The one that asks the system.
    package static let system = Resolver(concurrency: 8, lookUp: askSystem)

    private let lookUp: @Sendable (HostQuery) -> Answer
    private let line: Locked<Line>

    /// The lookups that wait, by their tickets, which grow by one.
    private struct Line {
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

    /// A lookup that has been asked for.
    package struct Lookup: Sendable {
        fileprivate let resolver: Resolver
        fileprivate let ticket: UInt64

        /// Takes the lookup out of the line. False when it is not there any more: it has been begun, and its
        /// completion is or will be called.
        @discardableResult package func cancel() -> Bool {
            resolver.line.withLock { $0.waiting.removeValue(forKey: ticket) } != nil
        }
    }

    /// - Parameter lookUp: Finds the addresses; it may block. Tests bring their own.
    package init(concurrency: Int, lookUp: @escaping @Sendable (HostQuery) -> Answer) {
        self.lookUp = lookUp
        line = Locked(Line(freeLanes: (0..<concurrency).map { DispatchQueue(label: "AsyncSockets.Resolver.\($0)") }))
    }

    /// Resolves a name or an address literal, and calls `completion`: at once (and then returns nil) for what
    /// needs no asking, or else from a thread of the resolver.
    package func resolve(_ query: HostQuery, completion: @escaping Completion) -> Lookup? {
        if let known = query.knownAddresses {
            completion(known.isEmpty ? .failure(ResolveError(query, code: EAI_NONAME)) : .success(known))
            return nil
        }
        let (ticket, lane) = line.withLock { line in
            line.waiting[line.nextTicket] = { [lookUp] in completion(lookUp(query)) }
            defer { line.nextTicket += 1 }
            return (line.nextTicket, line.freeLanes.popLast())
        }
        if let lane { lane.async { self.work(on: lane) } }
        return Lookup(resolver: self, ticket: ticket)
    }

    private func work(on lane: DispatchQueue) {
        while let next = takeNext(on: lane) { next() }
    }

    private func takeNext(on lane: DispatchQueue) -> (@Sendable () -> Void)? {
        line.withLock { line in
            let next = line.takeFirst()
            if next == nil { line.freeLanes.append(lane) }
            return next
        }
    }
}

// MARK: - The system's resolver

extension Resolver {
    /// `AI_ADDRCONFIG` spares a machine with one IP version the question for the other, but overlooks
    /// addresses that are only on the loopback interface: a name that it finds nothing for is asked for again
    /// without.
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
