internal import CLinux
internal import Glibc

extension SocketDescriptor {
    /// Whether the connection has agreed with its peer on Multipath TCP (RFC 8684): the socket is one of
    /// MPTCP and has not fallen back.
    package var isMultipath: Bool {
        var kind: CInt = 0
        var length = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(rawValue, SOL_SOCKET, SO_PROTOCOL, &kind, &length) == 0, kind == CInt(IPPROTO_MPTCP) else {
            return false
        }
        var facts = mptcp_info()
        length = socklen_t(MemoryLayout<mptcp_info>.size)
        guard getsockopt(rawValue, SOL_MPTCP, MPTCP_INFO, &facts, &length) == 0 else { return false }
        return facts.mptcpi_flags & Self.hasFallenBack == 0 && facts.mptcpi_flags & Self.hasPeersKey != 0
    }

    // `MPTCP_INFO_FLAG_FALLBACK` and `MPTCP_INFO_FLAG_REMOTE_KEY_RECEIVED` of linux/mptcp.h, which are no
    // plain numbers there.
    private static let hasFallenBack: UInt32 = 1 << 0
    private static let hasPeersKey: UInt32 = 1 << 1
}
