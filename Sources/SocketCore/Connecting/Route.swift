package struct Route: Hashable, Sendable {
    package let destination: SocketEndpoint
    /// `nil` if the kernel chooses the source.
    package let source: SocketEndpoint?
}

package struct RoutePolicy: Sendable {
    package var families: AddressFamilies
    package var preferredFamily: SocketEndpoint.Family
    /// The source of connections, or `nil` if the kernel chooses.
    package var interface: LocalInterface?
    /// Seconds between the starts of consecutive attempts.
    package var attemptDelay: Double

    package init(
        families: AddressFamilies = .both, preferredFamily: SocketEndpoint.Family = .ipv4, interface: LocalInterface? = nil,
        attemptDelay: Double = 0.3
    ) {
        self.families = families
        self.preferredFamily = preferredFamily
        self.interface = interface
        self.attemptDelay = attemptDelay
    }

    /// Returns the routes to `addresses`, in the order in which to try them. The result is never empty.
    package func routes(to addresses: [SocketEndpoint]) throws(NoRoute) -> [Route] {
        let enabled = addresses.filter { families.allows($0.family) }
        guard !enabled.isEmpty else { throw .familyDisabled(addresses) }
        let routes = HappyEyeballs.order(enabled, preferring: preferredFamily).compactMap { route(to: $0) }
        guard !routes.isEmpty else { throw .notFromInterface(interface?.text ?? "", enabled) }
        return routes
    }

    private func route(to address: SocketEndpoint) -> Route? {
        guard let interface else { return Route(destination: address, source: nil) }
        return interface.source(for: address).map { Route(destination: interface.withScope(address), source: $0) }
    }
}

package enum NoRoute: Error, Sendable {
    /// All addresses belong to disabled families.
    case familyDisabled([SocketEndpoint])
    /// The interface has no address in any of the host's address families.
    case notFromInterface(String, [SocketEndpoint])
}
