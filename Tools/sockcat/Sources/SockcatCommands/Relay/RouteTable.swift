/// A route on the command line: "NAME=HOST:PORT", in which NAME may begin with "*.".
struct RouteArgument: Equatable, Sendable {
    let name: String
    let target: Endpoint

    init(_ text: String) throws {
        guard let equals = text.firstIndex(of: "=") else {
            throw Failure.usage("\"\(text)\" has no target", advice: "write NAME=HOST:PORT")
        }
        name = text[..<equals].lowercased()
        target = try Endpoint(String(text[text.index(after: equals)...]))
        guard !name.isEmpty, name.utf8.allSatisfy({ $0 < 0x80 }), !name.dropFirst(2).contains("*") else {
            throw Failure.usage("\"\(name)\" is not a server name", advice: "write a DNS name, or \"*.\" and a DNS name")
        }
    }
}

/// The targets for the server names that clients request.
struct RouteTable: Sendable {
    private let exact: [String: Endpoint]
    /// The targets for all names with one more label than the key.
    private let wildcards: [String: Endpoint]
    private let fallback: Endpoint?

    /// - Parameter fallback: The target for all other clients.
    init(_ routes: [RouteArgument], fallback: Endpoint?) throws {
        var exact: [String: Endpoint] = [:]
        var wildcards: [String: Endpoint] = [:]
        for route in routes {
            let isWildcard = route.name.hasPrefix("*.")
            let key = isWildcard ? String(route.name.dropFirst(2)) : route.name
            guard (isWildcard ? wildcards : exact)[key] == nil else {
                throw Failure.usage("--route names \"\(route.name)\" twice", advice: "remove one of them")
            }
            if isWildcard { wildcards[key] = route.target } else { exact[key] = route.target }
        }
        (self.exact, self.wildcards, self.fallback) = (exact, wildcards, fallback)
    }

    /// Whether the target depends on the name, so that the client's first message must be read.
    var isByName: Bool { !exact.isEmpty || !wildcards.isEmpty }

    /// Returns the target for a name, or `nil` if the client must be rejected.
    func target(for name: String?) -> Endpoint? {
        guard let name else { return fallback }
        let key = name.lowercased()
        let parent = key.firstIndex(of: ".").map { String(key[key.index(after: $0)...]) } ?? ""
        return exact[key] ?? wildcards[parent] ?? fallback
    }
}
