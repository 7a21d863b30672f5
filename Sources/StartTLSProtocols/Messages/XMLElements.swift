/// The open elements of a stream, with their namespaces.
struct XMLElements: Sendable {
    struct Name: Equatable {
        let local: Substring
        let namespace: String
    }

    /// The maximum number of elements inside each other. The messages before TLS need four.
    static let depthLimit = 16

    private var open: [String] = []
    private var declarations: [(depth: Int, prefix: String, namespace: String)] = []

    /// The number of open elements. The stream itself is the first.
    var depth: Int { open.count }

    /// Updates the open elements. Returns the element's name, or `nil` if an end tag or a prefix does not
    /// match, or if the elements are too deep.
    mutating func apply(_ token: XMLToken) -> Name? {
        let inner = depth + 1
        for (name, value) in token.attributes {
            if name == "xmlns" { declarations.append((inner, "", value)) }
            if name.hasPrefix("xmlns:") { declarations.append((inner, String(name.dropFirst(6)), value)) }
        }
        let name = resolve(token.name)
        switch token.kind {
        case .start:
            guard inner <= Self.depthLimit else { return nil }
            open.append(token.name)
        case .empty: removeDeclarations(from: inner)
        case .end:
            guard open.last == token.name else { return nil }
            removeDeclarations(from: depth)
            open.removeLast()
        case .text, .declaration: break
        }
        return name
    }

    private mutating func removeDeclarations(from depth: Int) {
        while let last = declarations.last, last.depth >= depth { declarations.removeLast() }
    }

    private func resolve(_ name: String) -> Name? {
        let colon = name.firstIndex(of: ":")
        let prefix = colon.map { String(name[..<$0]) } ?? ""
        let local = colon.map { name[name.index(after: $0)...] } ?? name[...]
        if let declaration = declarations.last(where: { $0.prefix == prefix }) {
            return Name(local: local, namespace: declaration.namespace)
        }
        return colon == nil ? Name(local: local, namespace: "") : nil
    }
}
