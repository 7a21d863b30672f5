internal import FoundationEssentials
internal import Glibc

/// A socket option of the kernel and the type of its value, as used in
/// `socket.setOption(.keepAlive, to: true)`.
///
/// The available options are the static properties of this type. Each is described under its `name` in the
/// manual pages socket(7), tcp(7), ip(7) and ipv6(7).
public struct SocketOptionKey<Value: Sendable>: Sendable {
    /// The kernel's name for the option, such as `SO_KEEPALIVE`.
    public let name: String

    enum Scope: Sendable {
        /// Takes effect immediately on any socket.
        case always
        /// Takes effect only before a socket is bound or connected, so it is not set on accepted sockets.
        case unbound
    }

    struct Key: Sendable {
        let level: CInt
        let option: CInt

        init(_ level: CInt, _ option: CInt) {
            self.level = level
            self.option = option
        }
    }

    /// A single key, or a separate key for each IP family.
    enum Keys: Sendable {
        case one(Key)
        case byFamily(ipv4: Key, ipv6: Key)
    }

    let keys: Keys
    let scope: Scope
    /// Converts a value to the kernel's format, or returns `nil` if the value is not valid for the option.
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

// MARK: - Value types

extension SocketOptionKey where Value == Bool {
    static func flag(_ name: String, _ level: CInt, _ option: CInt, scope: Scope = .always) -> SocketOptionKey {
        .flag(name, .one(Key(level, option)), scope: scope)
    }

    static func flag(_ name: String, _ keys: Keys, scope: Scope = .always) -> SocketOptionKey {
        SocketOptionKey(name, keys, scope: scope) {
            CInt($0 ? 1 : 0).kernelBytes
        } decode: {
            CInt(kernelBytes: $0).map { $0 != 0 }
        }
    }
}

extension SocketOptionKey where Value == Int {
    static func number(_ name: String, _ keys: Keys, scope: Scope = .always) -> SocketOptionKey {
        SocketOptionKey(name, keys, scope: scope) {
            CInt(exactly: $0)?.kernelBytes
        } decode: {
            CInt(kernelBytes: $0).map(Int.init)
        }
    }
}

extension SocketOptionKey where Value == Duration {
    /// - Parameter unitsPerSecond: 1 or 1000. Fractions are rounded up, so that a short time does not become
    ///   zero.
    static func time(_ name: String, _ level: CInt, _ option: CInt, unitsPerSecond: Int64) -> SocketOptionKey {
        SocketOptionKey(name, .one(Key(level, option))) { time in
            let (seconds, attoseconds) = time.components
            let unit = 1_000_000_000_000_000_000 / unitsPerSecond
            let (units, isTooLong) = seconds.multipliedReportingOverflow(by: unitsPerSecond)
            guard !isTooLong else { return nil }
            // The fraction is less than one second, so adding almost a unit to it cannot overflow. It is
            // rounded up, but an excess of less than a nanosecond is ignored, because it may be a rounding
            // error of a `Double`.
            let nanosecond: Int64 = 1_000_000_000
            let (sum, overflows) = units.addingReportingOverflow((attoseconds + (attoseconds > 0 ? unit - nanosecond : 0)) / unit)
            return overflows ? nil : CInt(exactly: sum)?.kernelBytes
        } decode: {
            CInt(kernelBytes: $0).map { .seconds(1) * Int64($0) / unitsPerSecond }
        }
    }
}

extension SocketOptionKey where Value == String {
    /// - Parameter limit: The size of the kernel's buffer, including the terminating zero.
    static func text(_ name: String, _ level: CInt, _ option: CInt, limit: Int) -> SocketOptionKey {
        SocketOptionKey(name, .one(Key(level, option))) {
            let bytes = Array($0.utf8)
            return bytes.count < limit && !bytes.contains(0) ? bytes : nil
        } decode: {
            String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
        }
    }
}

extension SocketOptionKey where Value == Duration? {
    static func resetting(_ name: String, _ level: CInt, _ option: CInt) -> SocketOptionKey {
        SocketOptionKey(name, .one(Key(level, option))) { time in
            // With a linger time, close(2) blocks even for a non-blocking descriptor, and would block the
            // event loop.
            guard time == nil || time == .zero else { return nil }
            return CInt(time == nil ? 0 : 1).kernelBytes + CInt(0).kernelBytes
        } decode: { bytes in
            guard let isOn = CInt(kernelBytes: bytes), let seconds = CInt(kernelBytes: Array(bytes.dropFirst(4))) else {
                return nil
            }
            return .some(isOn == 0 ? nil : .seconds(seconds))
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
