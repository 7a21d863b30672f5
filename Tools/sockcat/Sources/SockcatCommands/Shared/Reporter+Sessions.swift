internal import AsyncSockets

extension Reporter {
    /// Prints the negotiated parameters of a connection if `--verbose` was given.
    func describe(_ session: TLSSession) {
        var facts = [session.protocolVersion.description, session.cipherSuite]
        if let group = session.group { facts.append(group) }
        if let name = session.applicationProtocol { facts.append("ALPN \(name)") }
        if session.isResumed { facts.append("resumed") }
        switch session.earlyData {
        case .accepted: facts.append("early data accepted")
        case .rejected: facts.append("early data rejected")
        default: break
        }
        detail("secure: \(facts.joined(separator: ", "))")
        if let identity = session.preSharedKeyIdentity {
            detail("peer: the pre-shared key \"\(String(decoding: identity, as: UTF8.self))\"")
        }
        guard let leaf = session.peerCertificates.first else { return }
        detail("peer: \(leaf.subject), issued by \(leaf.issuer)")
        detail("key of the peer (--pin): \(PinArgument.text(of: leaf))")
    }
}
