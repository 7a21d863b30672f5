internal import Glibc

/// A system call that failed: which one, and the `errno` it left.
package struct SystemError: Error, Hashable, Sendable, CustomStringConvertible {
    package let call: String
    package let errno: CInt
    /// Replaces the kernel's words.
    package let detail: String?
    /// The object of the failed call, such as an address.
    private var subject: String?

    package init(_ call: String, errno: CInt, detail: String? = nil) {
        self.call = call
        self.errno = errno
        self.detail = detail
    }

    /// The same error with its subject: `127.0.0.1:8080: address already in use`.
    package func about(_ address: SocketAddress) -> SystemError {
        about(address.description)
    }

    /// The same error with its subject, such as the path of a file.
    package func about(_ subject: String) -> SystemError {
        guard detail == nil else { return self }
        var error = self
        error.subject = subject
        return error
    }

    /// Reads `errno`: make it right after the call that failed.
    init(_ call: String) {
        self.init(call, errno: Glibc.errno)
    }

    /// True when the kernel lacks the address family, or has no such address to bind to.
    package var isFamilyMissing: Bool {
        errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL
    }

    package var isAddressInUse: Bool { errno == EADDRINUSE }

    /// A datagram is larger than the path to its destination carries, or than any may be.
    package var isTooLarge: Bool { errno == EMSGSIZE }
    package static let tooLarge = EMSGSIZE

    package var description: String {
        detail ?? "\(subject ?? call): \(reason)"
    }

    /// The kernel's words, without their capital.
    private var reason: String {
        let words = String(cString: strerror(errno))
        guard let second = words.dropFirst().first, second.isLowercase else { return words }
        return words.prefix(1).lowercased() + words.dropFirst()
    }
}

/// Runs a system call again for as long as a signal interrupts it.
@inline(__always)
func retryingOnInterrupt<Result: SignedInteger>(_ call: () -> Result) -> Result {
    while true {
        let result = call()
        if result != -1 || errno != EINTR { return result }
    }
}
