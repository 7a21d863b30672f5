internal import Glibc

/// A failed system call and its `errno`.
package struct SystemError: Error, Hashable, Sendable, CustomStringConvertible {
    package let call: String
    package let errno: CInt
    /// Replaces the kernel's error text.
    package let detail: String?
    /// The object of the failed call, such as an address.
    private var subject: String?

    package init(_ call: String, errno: CInt, detail: String? = nil) {
        self.call = call
        self.errno = errno
        self.detail = detail
    }

    /// Returns the same error with an address as its subject: `127.0.0.1:8080: address already in use`.
    package func about(_ address: SocketEndpoint) -> SystemError {
        about(address.description)
    }

    package func about(_ subject: String) -> SystemError {
        guard detail == nil else { return self }
        var error = self
        error.subject = subject
        return error
    }

    /// Reads `errno`, so it must be called directly after the failed call.
    init(_ call: String) {
        self.init(call, errno: Glibc.errno)
    }

    /// Whether the kernel does not support the address family or has no such address to bind to.
    package var isFamilyMissing: Bool {
        errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL
    }

    package var isAddressInUse: Bool { errno == EADDRINUSE }

    /// Whether a datagram was too large for the path to its destination, or exceeds the maximum datagram
    /// size.
    package var isTooLarge: Bool { errno == EMSGSIZE }
    package static let tooLarge = EMSGSIZE

    /// Whether no socket listens at the path.
    package var isMissing: Bool { errno == ENOENT || errno == ECONNREFUSED }

    /// The error for a file that was truncated while it was being sent.
    static func shorterFile(_ call: String) -> SystemError {
        SystemError(call, errno: ENODATA, detail: "the file became shorter while it was being sent")
    }

    package var description: String {
        detail ?? "\(subject ?? call): \(reason)"
    }

    /// The description without the name of the system call.
    package var descriptionWithoutCall: String {
        detail ?? subject.map { "\($0): \(reason)" } ?? reason
    }

    /// The kernel's error text, starting with a lowercase letter.
    private var reason: String {
        let words = String(cString: strerror(errno))
        guard let second = words.dropFirst().first, second.isLowercase else { return words }
        return words.prefix(1).lowercased() + words.dropFirst()
    }
}

/// Repeats a system call while it is interrupted by signals.
@inline(__always)
func retryingOnInterrupt<Result: SignedInteger>(_ call: () -> Result) -> Result {
    while true {
        let result = call()
        if result != -1 || errno != EINTR { return result }
    }
}
