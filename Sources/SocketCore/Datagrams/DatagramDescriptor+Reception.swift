internal import CLinux
internal import Glibc

/// Optional kernel features for receiving on a UDP socket.
package struct DatagramReception: OptionSet, Hashable, Sendable {
    package let rawValue: UInt8

    package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// Timestamps: the kernel reports when it received each datagram (`SO_TIMESTAMPNS`).
    package static let timestamps = DatagramReception(rawValue: 1 << 0)
    /// Coalescing: the kernel may deliver several datagrams from one sender in a single buffer (`UDP_GRO`,
    /// udp(7)). `DatagramReceiver` splits the buffer into datagrams.
    package static let coalescing = DatagramReception(rawValue: 1 << 1)
}

extension DatagramDescriptor {
    /// Enables metadata for received datagrams (local address and interface, ECN, drop count) and the error
    /// queue, which identifies the peer that an error concerns. Call this before binding the socket.
    ///
    /// - Returns: The features in `wanted` that the kernel supports.
    package func prepareReception(_ wanted: DatagramReception = []) throws(SystemError) -> DatagramReception {
        for fact: SocketOptionKey<Bool> in [.receivesPacketInfo, .receivesTrafficClass, .receivesDropCount, .receivesErrors] {
            try setIfPossible(fact, to: true)
        }
        var answer: DatagramReception = []
        if wanted.contains(.timestamps), try setIfPossible(.receivesTimestamps, to: true) { answer.insert(.timestamps) }
        if wanted.contains(.coalescing), enableCoalescing() { answer.insert(.coalescing) }
        return answer
    }

    /// Returns `false` if the kernel does not support UDP GRO, or if a system call filter rejects the option.
    /// Coalescing saves time but is not required.
    private func enableCoalescing() -> Bool {
        do throws(SystemError) {
            try set(.coalescesDatagrams, to: true)
            return true
        } catch {
            return false
        }
    }

    /// Whether UDP GRO is enabled, which means that one buffer may contain several datagrams. `nil` if the
    /// kernel cannot report it (before Linux 6.2).
    package var coalesces: Bool? {
        do throws(SystemError) {
            return try socket.value(of: .coalescesDatagrams)
        } catch {
            return nil
        }
    }

    /// Does the same as `prepareReception(_:)` for a socket that this library did not create. The kernel
    /// supports these options on every UDP socket.
    package func prepareAdopted(_ wanted: DatagramReception) {
        do throws(SystemError) {
            _ = try prepareReception(wanted)
        } catch {
            // Datagrams are then received with less metadata.
        }
    }

    /// Whether the kernel can split a large send into datagrams (`UDP_SEGMENT`, udp(7)). A kernel that does
    /// not support the option would send one large datagram.
    package var canSegment: Bool {
        do throws(SystemError) {
            _ = try socket.value(of: .segmentSize)
            return true
        } catch {
            return false
        }
    }

    /// The path MTU to the peer of a connected socket, as currently known to the kernel.
    ///
    /// - Throws: ENOTCONN if the socket is not connected.
    package var pathMTU: Int {
        get throws(SystemError) { try socket.value(of: .pathMTU) }
    }

    /// How many received datagrams the kernel dropped because the receive buffer was full or the checksum
    /// was wrong. The count wraps around. `nil` if the kernel does not report it.
    package var droppedCount: UInt32? {
        // `SK_MEMINFO_VARS` and `SK_MEMINFO_DROPS` from linux/sock_diag.h.
        var facts = [UInt32](repeating: 0, count: 9)
        var length = socklen_t(facts.count * MemoryLayout<UInt32>.size)
        let answer = getsockopt(socket.rawValue, SOL_SOCKET, SO_MEMINFO, &facts, &length)
        return answer == 0 && Int(length) == facts.count * MemoryLayout<UInt32>.size ? facts[8] : nil
    }
}
