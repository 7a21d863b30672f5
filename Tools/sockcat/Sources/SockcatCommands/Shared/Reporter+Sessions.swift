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
        describe(session.dane)
        guard let leaf = session.peerCertificates.first else { return }
        detail("peer: \(leaf.subject), issued by \(leaf.issuer)")
        detail("key of the peer (--pin): \(PinArgument.text(of: leaf))")
    }

    /// Prints which TLSA record authenticated a server if `--verbose` was given.
    func describe(_ dane: TLSDANEResult) {
        switch dane {
        case .matched(let record): detail("matching TLSA record: \(record.text)")
        case .resumed: detail("TLSA record: verified when the resumed session was established")
        case .notUsed, .certificates, .unauthenticated: break
        }
    }
}
