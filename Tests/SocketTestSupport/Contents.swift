package import SocketBuffers

/// The memory of a value, found by reflection: the number of elements of each of its collections, and its
/// objects. The contents of a table are equal before and after a test if its size has not changed.
///
/// Objects are counted, but only objects of the given types are entered. Values that cannot be copied, such
/// as `Ring`, are not found.
package struct Contents: Hashable, CustomStringConvertible {
    private let entered: [any AnyObject.Type]
    private var counts: [String: Int] = [:]

    /// - Parameters:
    ///   - value: A value, or an object.
    ///   - entered: Classes whose objects are entered too.
    package init(of value: Any, entering entered: [any AnyObject.Type] = []) {
        self.entered = entered
        if Mirror(reflecting: value).displayStyle == .class { enter(value, at: "") } else { add(value, at: "") }
    }

    /// The number of elements and objects at a path, such as `entries` or `entries[].waiters`.
    package subscript(path: String) -> Int { counts[path] ?? 0 }

    /// Returns a copy that does not compare these paths and everything below them.
    package func without(_ paths: String...) -> Contents {
        var rest = self
        rest.counts = counts.filter { path, _ in
            !paths.contains { path == $0 || path.hasPrefix($0 + "[]") || path.hasPrefix($0 + ".") }
        }
        return rest
    }

    package var description: String {
        counts.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }.joined(separator: ", ")
    }

    package static func == (one: Contents, other: Contents) -> Bool { one.counts == other.counts }

    package func hash(into hasher: inout Hasher) { hasher.combine(counts) }

    private mutating func add(_ value: Any, at path: String) {
        if let locked = value as? any Reflectable {
            locked.reflect { add($0, at: path) }
        } else if let collection = value as? any Countable {
            note(collection.elementCount, at: path)
            for element in collection.elements { add(element, at: path + "[]") }
        } else {
            let mirror = Mirror(reflecting: value)
            switch mirror.displayStyle {
            case .class:
                note(1, at: path)
                if entered.contains(where: { $0 == type(of: value as AnyObject) }) { enter(value, at: path) }
            case .optional:
                guard let content = mirror.children.first?.value else { return }
                if Mirror(reflecting: content).displayStyle != .class { note(1, at: path) }
                add(content, at: path)
            default: enter(value, at: path)
            }
        }
    }

    private mutating func enter(_ value: Any, at path: String) {
        var next: Mirror? = Mirror(reflecting: value)
        while let mirror = next {
            for (label, child) in mirror.children {
                add(child, at: [path, label ?? ""].filter { !$0.isEmpty }.joined(separator: "."))
            }
            next = mirror.superclassMirror
        }
    }

    private mutating func note(_ count: Int, at path: String) {
        if count > 0 { counts[path, default: 0] += count }
    }
}

private protocol Reflectable {
    func reflect(_ body: (Any) -> Void)
}

extension Locked: Reflectable {
    fileprivate func reflect(_ body: (Any) -> Void) { withLock { body($0) } }
}

private protocol Countable {
    var elementCount: Int { get }
    var elements: any Sequence { get }
}

extension Array: Countable {
    fileprivate var elementCount: Int { count }
    fileprivate var elements: any Sequence { self }
}

extension ArraySlice: Countable {
    fileprivate var elementCount: Int { count }
    fileprivate var elements: any Sequence { self }
}

extension Set: Countable {
    fileprivate var elementCount: Int { count }
    fileprivate var elements: any Sequence { [] as [Element] }
}

extension Dictionary: Countable {
    fileprivate var elementCount: Int { count }
    fileprivate var elements: any Sequence { values }
}

/// Counts the objects of a test that are still alive.
package final class Tally: Sendable {
    private let count = Locked(0)

    package init() {}

    package var alive: Int { count.withLock { $0 } }

    /// Returns a new object, which counts until it is released.
    package func token() -> any AnyObject & Sendable { Token(self) }

    private final class Token: Sendable {
        private let tally: Tally

        init(_ tally: Tally) {
            self.tally = tally
            tally.count.withLock { $0 += 1 }
        }

        deinit { tally.count.withLock { $0 -= 1 } }
    }
}
