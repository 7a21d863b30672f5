internal import CLinux
internal import Glibc

/// The extra services of the kernel for a UDP socket that receives.
package struct DatagramReception: OptionSet, Hashable, Sendable {
    package let rawValue: UInt8

    package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// Each datagram has the time at which the kernel got it (`SO_TIMESTAMPNS`).
    package static let timestamps = DatagramReception(rawValue: 1 << 0)
    /// The kernel may hand over several datagrams of one sender in one piece (`UDP_GRO`, udp(7));
    /// `DatagramReceiver` takes them apart.
    package static let coalescing = DatagramReception(rawValue: 1 << 1)
}

extension DatagramDescriptor {
    /// Asks the kernel for the facts of each datagram: the address and interface that it came to, ECN, and
    /// the count of dropped ones; and for an error queue, which names the peers. Call it before binding.
    ///
    /// - Returns: Those of `wanted` that the kernel has.
    package func prepareReception(_ wanted: DatagramReception = []) throws(SystemError) -> DatagramReception {
        for fact: SocketOption<Bool> in [.receivesPacketInfo, .receivesTrafficClass, .receivesDropCount, .receivesErrors] {
            try setIfKnown(fact, to: true)
        }
        var answer: DatagramReception = []
        if wanted.contains(.timestamps), try setIfKnown(.receivesTimestamps, to: true) { answer.insert(.timestamps) }
        if wanted.contains(.coalescing), try setIfKnown(.coalescesDatagrams, to: true) { answer.insert(.coalescing) }
        return answer
    }

    /// Whether it has UDP GRO, so that a piece may hold several datagrams; nil when the kernel does not tell,
    /// as before Linux 6.2.
    package var coalesces: Bool? {
        do throws(SystemError) {
            return try socket.value(of: .coalescesDatagrams)
        } catch {
            return nil
        }
    }

    /// The same as `prepareReception(_:)` for a socket that others have made. The kernel knows these options
    /// of each UDP socket.
    package func prepareAdopted(_ wanted: DatagramReception) {
        do throws(SystemError) {
            _ = try prepareReception(wanted)
        } catch {
            // It receives with fewer facts.
        }
    }

    /// True when the kernel cuts a large send into datagrams (`UDP_SEGMENT`, udp(7)). One that does not know
    /// the option would send them as one.
    package var canSegment: Bool {
        do throws(SystemError) {
            _ = try socket.value(of: .segmentSize)
            return true
        } catch {
            return false
        }
    }

    /// The largest IP packet that the path to the peer of a connected socket carries, as far as the kernel
    /// knows.
    ///
    /// - Throws: ENOTCONN when it is not connected.
    package var pathMTU: Int {
        get throws(SystemError) { try socket.value(of: .pathMTU) }
    }

    /// How many received datagrams the kernel has dropped because the receive buffer was full or the checksum
    /// was wrong. It wraps around; nil when the kernel does not tell.
    package var droppedCount: UInt32? {
        // `SK_MEMINFO_VARS` and `SK_MEMINFO_DROPS` of linux/sock_diag.h.
        var facts = [UInt32](repeating: 0, count: 9)
        var length = socklen_t(facts.count * MemoryLayout<UInt32>.size)
        let answer = getsockopt(socket.rawValue, SOL_SOCKET, SO_MEMINFO, &facts, &length)
        return answer == 0 && Int(length) == facts.count * MemoryLayout<UInt32>.size ? facts[8] : nil
    }
}
