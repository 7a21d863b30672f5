internal import FoundationEssentials
internal import Glibc

/// One of the kernel's options of a socket, with the type of its value: `socket.setOption(.keepAlive, to:
/// true)`.
///
/// The static properties of this type are the options. The manual pages socket(7), tcp(7), ip(7) and ipv6(7)
/// describe each under its `name`.
public struct SocketOption<Value: Sendable>: Sendable {
    /// The kernel's name for it, such as `SO_KEEPALIVE`.
    public let name: String

    /// When an option takes effect.
    enum Scope: Sendable {
        /// At once, on every socket.
        case always
        /// Only on a socket that is not bound or connected yet: an accepted one does not get it.
        case unbound
    }

    /// The kernel's numbers for an option.
    struct Key: Sendable {
        let level: CInt
        let option: CInt

        init(_ level: CInt, _ option: CInt) {
            self.level = level
            self.option = option
        }
    }

    /// One key, or one for each IP family.
    enum Keys: Sendable {
        case one(Key)
        case byFamily(ipv4: Key, ipv6: Key)
    }

    let keys: Keys
    let scope: Scope
    /// The value as the kernel takes it; nil when the option has no such value.
    let encode: @Sendable (Value) -> [UInt8]?
    let decode: @Sendable ([UInt8]) -> Value?

    init(
        _ name: String, _ keys: Keys, scope: Scope = .always,
        encode: @escaping @Sendable (Value) -> [UInt8]?, decode: @escaping @Sendable ([UInt8]) -> Value?
    ) {
        self.name = name
        self.keys = keys
        self.scope = scope
        self.encode = encode
        self.decode = decode
    }
}

// MARK: - The kinds of values

extension SocketOption where Value == Bool {
    static func flag(_ name: String, _ level: CInt, _ option: CInt, scope: Scope = .always) -> SocketOption {
        .flag(name, .one(Key(level, option)), scope: scope)
    }

    static func flag(_ name: String, _ keys: Keys, scope: Scope = .always) -> SocketOption {
        SocketOption(name, keys, scope: scope) {
            CInt($0 ? 1 : 0).kernelBytes
        } decode: {
            CInt(kernelBytes: $0).map { $0 != 0 }
        }
    }
}

extension SocketOption where Value == Int {
    static func number(_ name: String, _ keys: Keys, scope: Scope = .always) -> SocketOption {
        SocketOption(name, keys, scope: scope) {
            CInt(exactly: $0)?.kernelBytes
        } decode: {
            CInt(kernelBytes: $0).map(Int.init)
        }
    }
}

extension SocketOption where Value == TimeInterval {
    /// - Parameter unitsPerSecond: 1 or 1000. A fraction is rounded up, so that a short time does not become
    ///   zero.
    static func time(_ name: String, _ level: CInt, _ option: CInt, unitsPerSecond: Double) -> SocketOption {
        SocketOption(name, .one(Key(level, option))) {
            CInt(exactly: ($0 * unitsPerSecond).rounded(.up))?.kernelBytes
        } decode: {
            CInt(kernelBytes: $0).map { Double($0) / unitsPerSecond }
        }
    }
}

extension SocketOption where Value == String {
    /// - Parameter limit: The bytes that the kernel has room for, with the zero at the end.
    static func text(_ name: String, _ level: CInt, _ option: CInt, limit: Int) -> SocketOption {
        SocketOption(name, .one(Key(level, option))) {
            let bytes = Array($0.utf8)
            return bytes.count < limit && !bytes.contains(0) ? bytes : nil
        } decode: {
            String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
        }
    }
}

extension SocketOption where Value == TimeInterval? {
    static func resetting(_ name: String, _ level: CInt, _ option: CInt) -> SocketOption {
        SocketOption(name, .one(Key(level, option))) { seconds in
            // With a time close(2) waits, even for a non-blocking descriptor, and so would the event loop.
            guard seconds == nil || seconds == 0 else { return nil }
            return CInt(seconds == nil ? 0 : 1).kernelBytes + CInt(0).kernelBytes
        } decode: { bytes in
            guard let isOn = CInt(kernelBytes: bytes), let seconds = CInt(kernelBytes: Array(bytes.dropFirst(4))) else {
                return nil
            }
            return .some(isOn == 0 ? nil : TimeInterval(seconds))
        }
    }
}

extension CInt {
    var kernelBytes: [UInt8] { withUnsafeBytes(of: self) { Array($0) } }

    init?(kernelBytes: [UInt8]) {
        guard kernelBytes.count >= MemoryLayout<CInt>.size else { return nil }
        self = kernelBytes.withUnsafeBytes { $0.loadUnaligned(as: CInt.self) }
    }
}
