extension TLSSettings where Side == TLSRole.Server {
    /// The session tickets that the server issues, which let clients resume their sessions. Defaults to
    /// `.none`.
    ///
    /// A client that resumes a session does not present its certificate again and does not prove that it
    /// still has the key. The verdict is stored in the ticket. It is valid for one hour at most, but not
    /// longer than the certificate, and a certificate that is revoked during this time is still accepted. If
    /// `trustEvaluation` is `.delegate`, the trust callback is called again, with the client's own
    /// certificate but without its chain. If it is `.manual` and `clients` is `.certificates`, tickets are an
    /// error, as they are with raw public keys and with `clients` set to `.preSharedKeys`.
    public var sessionTickets: TLSSessionTickets {
        get { values.tickets }
        set { values.tickets = newValue }
    }
}

extension TLSSettingValues {
    func validateTickets() throws(TLSError) {
        guard case .issued(let count, _) = tickets else { return }
        try Self.validate(count, in: 1...8, "the number of session tickets")
        if clientCertificates == .optional || clientCertificates == .required, trustEvaluation == .manual {
            throw Self.invalid(
                "sessionTickets store the verdict on a client certificate, but trustEvaluation is .manual: set it to .delegate, or set sessionTickets to .none"
            )
        }
    }
}
