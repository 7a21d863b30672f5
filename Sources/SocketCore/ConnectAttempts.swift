/// The addresses of a host, tried one after the other until one answers.
///
/// A plain value that decides; the connection acts.
package struct ConnectAttempts: Sendable {
    private var untried: ArraySlice<SocketAddress>
    /// Why the attempts so far have failed.
    package private(set) var failures: [(address: SocketAddress, error: SystemError)] = []

    package init(_ addresses: [SocketAddress]) {
        untried = addresses[...]
    }

    /// The address to try now; nil when all have been tried.
    package mutating func next() -> SocketAddress? {
        untried.popFirst()
    }

    package mutating func recordFailure(of address: SocketAddress, _ error: SystemError) {
        failures.append((address, error))
    }
}
