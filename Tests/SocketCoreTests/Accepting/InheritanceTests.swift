import AsyncSocketsTesting
import Glibc
import SocketBuffers
import SocketCore
import Testing

/// Descriptors inherited from a service manager, as described in the environment.
@Suite struct InheritanceTests {
    private static let processID: pid_t = 4711

    private static let placeCount = Locked<CInt>(0)

    /// Duplicates sockets to consecutive unused descriptor numbers.
    private static func place(_ sockets: [RawSocket]) throws -> CInt {
        // Above everything that the process opens, so that consecutive numbers are free.
        var limit = rlimit()
        try #require(getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
        let place = placeCount.withLock { count in
            count += 1
            return count
        }
        let first = CInt(clamping: min(limit.rlim_cur, 20_000)) - place * 4
        for (index, socket) in sockets.enumerated() {
            try #require(fcntl(first + CInt(index), F_GETFD) < 0)
            try #require(dup2(socket.descriptor, first + CInt(index)) >= 0)
        }
        return first
    }

    private static func environment(_ count: String, names: String? = nil, process: String = "\(processID)") -> [String: String] {
        var environment = ["LISTEN_PID": process, "LISTEN_FDS": count, "HOME": "/"]
        environment["LISTEN_FDNAMES"] = names
        return environment
    }

    private static func inherit(_ environment: [String: String], from first: CInt = 3) throws -> Inheritance {
        try Inheritance(environment: environment, processID: processID, firstNumber: first)
    }

    @Test func eachDescriptorHasItsNameAndIsClaimedOnce() throws {
        let sockets = try (0..<3).map { _ in try RawSocket.listening() }
        let first = try Self.place(sockets)
        let inheritance = try Self.inherit(Self.environment("3", names: "web:mail:web"), from: first)
        for number in first..<first + 3 { #expect(fcntl(number, F_GETFD) == FD_CLOEXEC) }
        #expect(try inheritance.claim(named: "other").isEmpty)
        let web = try inheritance.claim(named: "web")
        #expect(web.map(\.name) == ["web", "web"])
        #expect(web.map(\.localAddress) == [try sockets[0].localAddress, try sockets[2].localAddress])
        let again = #expect(throws: InheritedDescriptorError.self) { _ = try inheritance.claim(named: "web") }
        #expect(again?.code == .alreadyClaimed)
        // Unclaimed descriptors are unchanged, except for close-on-exec.
        #expect(fcntl(first, F_GETFL) & O_NONBLOCK != 0 && fcntl(first + 1, F_GETFL) & O_NONBLOCK == 0)
        #expect(try inheritance.claim(named: nil).map(\.name) == ["mail"])
        let all = #expect(throws: InheritedDescriptorError.self) { _ = try inheritance.claim(named: nil) }
        #expect(all?.code == .alreadyClaimed)
    }

    @Test func aClaimedDescriptorClosesWithItsOwner() throws {
        let first = try Self.place([try RawSocket.listening(), try RawSocket.listening()])
        var claimed = try Self.inherit(Self.environment("2"), from: first).claim(named: nil)
        #expect(claimed.map(\.name) == ["unknown", "unknown"])
        let number = claimed[0].relinquish()
        #expect(number == first)
        #expect(claimed[0].relinquish() == nil && claimed[0].localAddress == nil)
        claimed = []
        #expect(fcntl(first, F_GETFD) >= 0 && fcntl(first + 1, F_GETFD) < 0)
        close(first)
    }

    @Test(arguments: [
        [:], ["LISTEN_FDS": "1"], ["LISTEN_PID": "4711"], environment("1", process: "4712"), environment("0"),
        environment("0", names: ""),
    ])
    func aProcessWithoutAnyGetsNone(environment: [String: String]) throws {
        let inheritance = try Self.inherit(environment)
        #expect(try inheritance.claim(named: nil).isEmpty)
        #expect(try inheritance.claim(named: nil).isEmpty)
    }

    @Test(arguments: [
        environment("1", process: "x"), environment("1", process: ""), environment("1", process: "0"),
        environment("1", process: "-4711"), environment("1", process: "99999999999"), environment(""), environment("-1"),
        environment("+1"), environment(" 1"), environment("1x"), environment("2147483647"), environment("99999999999999999999"),
        environment("0", names: "a"), environment("1", names: ":"), environment("1", names: "a:b"),
        environment("1", names: "a\n"), environment("1", names: "ä"), environment("1", names: String(repeating: "a", count: 256)),
    ])
    func anEnvironmentThatIsWrongIsRefused(environment: [String: String]) throws {
        let first = try Self.place([try RawSocket.listening()])
        defer { close(first) }
        let error = #expect(throws: InheritedDescriptorError.self) { _ = try Self.inherit(environment, from: first) }
        #expect(error?.code == .malformedEnvironment)
        #expect(fcntl(first, F_GETFD) == 0)
    }

    @Test(arguments: ["2", "2000000000"])
    func aDescriptorThatIsNotOpenIsMissing(count: String) throws {
        let first = try Self.place([try RawSocket.listening()])
        defer { close(first) }
        let error = #expect(throws: InheritedDescriptorError.self) { _ = try Self.inherit(Self.environment(count), from: first) }
        #expect(error?.code == .missingDescriptor)
        #expect(error?.message.contains("\(first + 1)") == true)
        #expect(fcntl(first, F_GETFD) == 0)
    }
}
