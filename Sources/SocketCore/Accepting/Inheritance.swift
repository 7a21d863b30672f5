package import Glibc
internal import SocketBuffers

/// All descriptors that a process inherits, as its environment announces them (sd_listen_fds(3)).
package final class Inheritance: Sendable {
    static let processVariable = "LISTEN_PID"
    static let countVariable = "LISTEN_FDS"
    static let namesVariable = "LISTEN_FDNAMES"
    /// The first one (`SD_LISTEN_FDS_START`).
    package static let firstNumber: CInt = 3

    /// The descriptors that have not been claimed.
    private let unclaimed: Locked<[InheritedDescriptor]>
    private let names: [String]

    /// Takes over all of them.
    ///
    /// There are none without `LISTEN_PID` and `LISTEN_FDS`, and none when these are meant for another
    /// process.
    ///
    /// - Parameter firstNumber: A test has descriptors of its own at 3.
    /// - Throws: `.malformedEnvironment` or `.missingDescriptor`; then all descriptors stay as they are.
    package init(
        environment: [String: String], processID: pid_t, firstNumber: CInt = Inheritance.firstNumber
    ) throws(InheritanceError) {
        let names = try Self.names(in: environment, processID: processID, firstNumber: firstNumber)
        self.names = names
        unclaimed = Locked(names.enumerated().map { InheritedDescriptor(firstNumber + CInt($0), name: $1) })
    }

    /// - Parameter name: nil: all.
    /// - Throws: `.alreadyClaimed`.
    package func claim(named name: String?) throws(InheritanceError) -> [InheritedDescriptor] {
        let claimed = unclaimed.withLock { unclaimed in
            let claimed = unclaimed.filter { name == nil || $0.name == name }
            unclaimed.removeAll { name == nil || $0.name == name }
            return claimed
        }
        guard !claimed.isEmpty || !names.contains(where: { name == nil || $0 == name }) else {
            let which = name.map { " \"\($0)\"" } ?? ""
            throw InheritanceError(
                .alreadyClaimed, "the inherited descriptors\(which) have been claimed already: claim them once")
        }
        for descriptor in claimed { descriptor.setNonBlocking() }
        return claimed
    }

    // MARK: - The environment

    /// One name for each descriptor.
    private static func names(
        in environment: [String: String], processID: pid_t, firstNumber: CInt
    ) throws(InheritanceError) -> [String] {
        guard let process = environment[processVariable], let announced = environment[countVariable] else { return [] }
        guard let intended = number(process), intended > 0 else {
            throw malformed("\(processVariable) should be the number of a process, and is \(quote(process))")
        }
        guard intended == processID else { return [] }
        guard let count = number(announced), count <= CInt.max - firstNumber else {
            throw malformed("\(countVariable) should be the number of descriptors, and is \(quote(announced))")
        }
        // Before anything is made for them: the number may be any.
        for number in firstNumber..<firstNumber + count where fcntl(number, F_GETFD) < 0 {
            throw InheritanceError(
                .missingDescriptor, "\(countVariable) announces descriptors \(firstNumber) and up, and \(number) is not open")
        }
        guard let text = environment[namesVariable] else { return Array(repeating: "unknown", count: Int(count)) }
        let names = text.isEmpty && count == 0 ? [] : text.split(separator: ":", omittingEmptySubsequences: false)
        guard names.count == Int(count) else {
            throw malformed("\(namesVariable) has \(names.count) names for \(count) descriptors: \(quote(text))")
        }
        for name in names where !name.utf8.allSatisfy({ (0x20...0x7e).contains($0) }) || name.utf8.count > longestName {
            throw malformed("\(namesVariable) has a name that is not ASCII of at most \(longestName) bytes: \(quote(text))")
        }
        return names.map(String.init)
    }

    /// systemd's limit (`FDNAME_MAX`).
    private static let longestName = 255

    /// Digits, and nothing else.
    private static func number(_ text: String) -> CInt? {
        guard text.utf8.allSatisfy((UInt8(ascii: "0")...UInt8(ascii: "9")).contains) else { return nil }
        return CInt(text)
    }

    private static func malformed(_ message: String) -> InheritanceError {
        InheritanceError(.malformedEnvironment, message)
    }

    private static func quote(_ text: String) -> String { ProxyFailure.quote(text.utf8) }
}

extension InheritedDescriptor {
    /// Takes all that have not been claimed yet, in the manager's order.
    ///
    /// - Returns: None when this process was started without any.
    /// - Throws: What `claim(named:)` throws.
    public static func claimAll() throws(InheritanceError) -> [InheritedDescriptor] {
        try ofProcess.get().claim(named: nil)
    }

    /// Takes all of one name.
    ///
    /// - Parameter name: As the manager's configuration has it: `FileDescriptorName=` of systemd.socket(5),
    ///   or else the name of the socket's unit, such as `web.socket`.
    /// - Returns: None when no descriptor has that name, or when this process was started without any.
    /// - Throws: `.malformedEnvironment`; `.missingDescriptor`; `.alreadyClaimed` when there were some, and
    ///   all have been claimed.
    public static func claim(named name: String) throws(InheritanceError) -> [InheritedDescriptor] {
        try ofProcess.get().claim(named: name)
    }

    private static let ofProcess = Result { () throws(InheritanceError) in
        let names = [Inheritance.processVariable, Inheritance.countVariable, Inheritance.namesVariable]
        let pairs = names.compactMap { name in getenv(name).map { (name, String(cString: $0)) } }
        return try Inheritance(environment: Dictionary(uniqueKeysWithValues: pairs), processID: getpid())
    }
}
