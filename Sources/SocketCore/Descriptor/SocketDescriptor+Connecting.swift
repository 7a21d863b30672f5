internal import CLinux
internal import Glibc

/// What has become of an attempt to connect.
enum ConnectOutcome {
    case connected
    case failed(SystemError)
}

extension SocketDescriptor {
    /// Has the connection come from an address of ours; call it before `connect`.
    ///
    /// With port 0 the kernel chooses one when it knows the destination, so that many connections can share a
    /// port (`IP_BIND_ADDRESS_NO_PORT`, ip(7)). A port of our own may be in use by another connection, to
    /// someone else or just over.
    func useSource(_ source: SocketAddress) throws(SystemError) {
        if source.port == 0 {
            setFlag(level: CInt(IPPROTO_IP), option: IP_BIND_ADDRESS_NO_PORT)
        } else {
            setFlag(level: SOL_SOCKET, option: SO_REUSEADDR)
        }
        guard source.withSockaddr({ Glibc.bind(rawValue, $0, $1) }) == 0 else { throw SystemError("bind") }
    }

    /// What has become of an attempt to connect; nil: it is still under way.
    func connectOutcome(_ events: LoopEvents) -> ConnectOutcome? {
        guard !events.isDisjoint(with: [.writable, .hangup]) else { return nil }
        if let error = takeError(of: "connect") { return .failed(error) }
        guard let peer = remoteAddress else {
            return events.contains(.hangup) ? .failed(SystemError("connect", errno: ECONNRESET)) : nil
        }
        let isItself = peer.family.isInternet && peer == localAddress
        return isItself ? .failed(SystemError("connect", errno: ECONNREFUSED)) : .connected
    }
}
