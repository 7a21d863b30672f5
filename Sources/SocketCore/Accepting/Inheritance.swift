package import Glibc
internal import SocketBuffers

/// The descriptors that a process inherits, as announced in its environment (sd_listen_fds(3)).
package final class Inheritance: Sendable {
    static let processVariable = "LISTEN_PID"
    static let countVariable = "LISTEN_FDS"
    static let namesVariable = "LISTEN_FDNAMES"
    /// The number of the first descriptor (`SD_LISTEN_FDS_START`).
    package static let firstNumber: CInt = 3

    private let unclaimed: Locked<[InheritedDescriptor]>
    private let names: [String]

    /// Takes over all inherited descriptors.
    ///
    /// Does nothing if `LISTEN_PID` or `LISTEN_FDS` is missing, or if `LISTEN_PID` is the ID of another
    /// process.
    ///
    /// - Parameter firstNumber: The number of the first descriptor. Tests use a different number, because
    ///   descriptor 3 is already in use.
    /// - Throws: `.malformedEnvironment` or `.missingDescriptor`, in which case all descriptors remain
    ///   unchanged.
    package init(
        environment: [String: String], processID: pid_t, firstNumber: CInt = Inheritance.firstNumber
    ) throws(InheritedDescriptorError) {
        let names = try Self.names(in: environment, processID: processID, firstNumber: firstNumber)
        self.names = names
        unclaimed = Locked(names.enumerated().map { InheritedDescriptor(firstNumber + CInt($0), name: $1) })
    }

    /// - Parameter name: Restricts the claim to descriptors with this name, or `nil` to claim all.
    /// - Throws: `.alreadyClaimed`.
    package func claim(named name: String?) throws(InheritedDescriptorError) -> [InheritedDescriptor] {
        let claimed = unclaimed.withLock { unclaimed in
            let claimed = unclaimed.filter { name == nil || $0.name == name }
            unclaimed.removeAll { name == nil || $0.name == name }
            return claimed
        }
        guard !claimed.isEmpty || !names.contains(where: { name == nil || $0 == name }) else {
            let which = name.map { " \"\($0)\"" } ?? ""
            throw InheritedDescriptorError(
                .alreadyClaimed, "the inherited descriptors\(which) have already been claimed: claim them only once")
        }
        for descriptor in claimed { descriptor.setNonBlocking() }
        return claimed
    }

    // MARK: - The environment

    private static func names(
        in environment: [String: String], processID: pid_t, firstNumber: CInt
    ) throws(InheritedDescriptorError) -> [String] {
        guard let process = environment[processVariable], let announced = environment[countVariable] else { return [] }
        guard let intended = number(process), intended > 0 else {
            throw malformed("\(processVariable) must be a process ID, but is \(quote(process))")
        }
        guard intended == processID else { return [] }
        guard let count = number(announced), count <= CInt.max - firstNumber else {
            throw malformed("\(countVariable) must be the number of descriptors, but is \(quote(announced))")
        }
        // Checked before allocating memory, because the environment can announce any number.
        for number in firstNumber..<firstNumber + count where fcntl(number, F_GETFD) < 0 {
            throw InheritedDescriptorError(
                .missingDescriptor,
                "\(countVariable) is \(count), so descriptors from \(firstNumber) to \(firstNumber + count - 1) must be open, "
                    + "but \(number) is not")
        }
        guard let text = environment[namesVariable] else { return Array(repeating: "unknown", count: Int(count)) }
        let names = text.isEmpty && count == 0 ? [] : text.split(separator: ":", omittingEmptySubsequences: false)
        guard names.count == Int(count) else {
            throw malformed("\(namesVariable) contains \(names.count) names for \(count) descriptors: \(quote(text))")
        }
        for name in names where !name.utf8.allSatisfy({ (0x20...0x7e).contains($0) }) || name.utf8.count > longestName {
            throw malformed("\(namesVariable) contains a name that is not ASCII or exceeds \(longestName) bytes: \(quote(text))")
        }
        return names.map(String.init)
    }

    /// systemd's limit (`FDNAME_MAX`).
    private static let longestName = 255

    /// Accepts only digits, without a sign.
    private static func number(_ text: String) -> CInt? {
        guard text.utf8.allSatisfy((UInt8(ascii: "0")...UInt8(ascii: "9")).contains) else { return nil }
        return CInt(text)
    }

    private static func malformed(_ message: String) -> InheritedDescriptorError {
        InheritedDescriptorError(.malformedEnvironment, message)
    }

    private static func quote(_ text: String) -> String { ProxyFailure.quote(text.utf8) }
}

extension InheritedDescriptor {
    /// Claims all descriptors that have not been claimed yet, in the service manager's order.
    ///
    /// - Returns: The descriptors. Empty if this process was started without inherited descriptors.
    /// - Throws: The errors of `claim(named:)`.
    public static func claimAll() throws(InheritedDescriptorError) -> [InheritedDescriptor] {
        try ofProcess.get().claim(named: nil)
    }

    /// Claims all descriptors with a name.
    ///
    /// - Parameter name: The name in the service manager's configuration: `FileDescriptorName=` of
    ///   systemd.socket(5), which defaults to the name of the socket unit, such as `web.socket`.
    /// - Returns: The descriptors. Empty if no descriptor has this name, or if this process was started
    ///   without inherited descriptors.
    /// - Throws: `.malformedEnvironment`; `.missingDescriptor`; `.alreadyClaimed` if all descriptors with
    ///   this name have already been claimed.
    public static func claim(named name: String) throws(InheritedDescriptorError) -> [InheritedDescriptor] {
        try ofProcess.get().claim(named: name)
    }

    private static let ofProcess = Result { () throws(InheritedDescriptorError) in
        let names = [Inheritance.processVariable, Inheritance.countVariable, Inheritance.namesVariable]
        let pairs = names.compactMap { name in getenv(name).map { (name, String(cString: $0)) } }
        return try Inheritance(environment: Dictionary(uniqueKeysWithValues: pairs), processID: getpid())
    }
}
