import Dispatch
import Glibc
import SocketBuffers
import SocketCore
import SocketTestTraits
import Testing

/// A resolver whose lookups are observed and completed by the test.
private final class GatedLookups: Sendable {
    let begun = AsyncStream<String>.makeStream()
    private let gate = DispatchSemaphore(value: 0)

    func makeResolver(concurrency: Int) -> Resolver {
        Resolver(concurrency: concurrency) { [self] query in
            begun.continuation.yield(query.host)
            gate.wait()
            return .failure(ResolveError(query, code: EAI_NONAME))
        }
    }

    func answerOne() { gate.signal() }
}

@Suite(.timeLimit(.patient)) struct ResolverTests {
    private static func resolve(
        _ host: String, families: AddressFamilies = .both, with resolver: Resolver = .system
    ) async -> Resolver.Answer {
        await withCheckedContinuation { continuation in
            _ = resolver.resolve(HostQuery(host: host, port: 80, families: families)) { continuation.resume(returning: $0) }
        }
    }

    /// A resolver that must not be used: a lookup fails the test.
    private static let silent = Resolver(concurrency: 1) { query in
        Issue.record("asked for \(query.host)")
        return .failure(ResolveError(query, code: EAI_NONAME))
    }

    @Test(arguments: ["127.0.0.1", "::1", "[::1]", "localhost", "LocalHost.", "mail.localhost", "loopback"])
    func literalsAndLocalhostNeedNoAsking(_ host: String) async throws {
        #expect(try await !Self.resolve(host, with: Self.silent).get().isEmpty)
    }

    @Test func localhostHasTheEnabledFamiliesOnly() async throws {
        #expect(try await Self.resolve("localhost", with: Self.silent).get().map(\.host) == ["127.0.0.1", "::1"])
        #expect(try await Self.resolve("localhost", families: .ipv4, with: Self.silent).get().map(\.host) == ["127.0.0.1"])
        #expect(try await Self.resolve("localhost", families: .ipv6, with: Self.silent).get().map(\.host) == ["::1"])
    }

    @Test func theLookupsThatWaitAreServedInOrder() async throws {
        let lookups = GatedLookups()
        let resolver = lookups.makeResolver(concurrency: 1)
        for number in 0..<5 { _ = resolver.resolve(HostQuery(host: "host\(number).test", port: 1)) { _ in } }
        var begun = lookups.begun.stream.makeAsyncIterator()
        for number in 0..<5 {
            #expect(await begun.next() == "host\(number).test")
            lookups.answerOne()
        }
    }

    @Test func aLookupThatIsCancelledInLineIsNeverBegun() async throws {
        let lookups = GatedLookups()
        let resolver = lookups.makeResolver(concurrency: 1)
        let first = resolver.resolve(HostQuery(host: "first.test", port: 1)) { _ in }
        var begun = lookups.begun.stream.makeAsyncIterator()
        #expect(await begun.next() == "first.test")
        let second = resolver.resolve(HostQuery(host: "second.test", port: 1)) { _ in Issue.record("it was answered") }
        _ = resolver.resolve(HostQuery(host: "third.test", port: 1)) { _ in }
        #expect(second?.cancel() == true)
        #expect(second?.cancel() == false)
        #expect(first?.cancel() == false)
        lookups.answerOne()
        #expect(await begun.next() == "third.test")
        lookups.answerOne()
    }

    @Test func noMoreLookupsAreUnderWayThanAllowed() async throws {
        let lookups = GatedLookups()
        let resolver = lookups.makeResolver(concurrency: 3)
        let answered = AsyncStream<Void>.makeStream()
        for number in 0..<6 {
            _ = resolver.resolve(HostQuery(host: "\(number).test", port: 1)) { _ in answered.continuation.yield() }
        }
        var begun = lookups.begun.stream.makeAsyncIterator()
        var answers = answered.stream.makeAsyncIterator()
        var hosts: [String?] = []
        for _ in 0..<3 { hosts.append(await begun.next()) }
        #expect(Set(hosts) == ["0.test", "1.test", "2.test"])
        for next in 3..<6 {
            lookups.answerOne()
            await answers.next()
            // The fourth starts when one of the three completes, and so on.
            #expect(await begun.next() == "\(next).test")
        }
        for _ in 0..<3 { lookups.answerOne() }
    }
}
