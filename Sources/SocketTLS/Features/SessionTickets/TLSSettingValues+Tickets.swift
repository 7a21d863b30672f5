extension TLSSettingValues {
    func validateTickets() throws(TLSError) {
        guard case .issued(let count, _) = tickets else { return }
        try Self.validate(count, in: 1...8, "the number of session tickets")
        if !showsCertificates {
            throw Self.invalid("clients is .preSharedKeys, which cannot be combined with sessionTickets")
        }
        if clientCertificates == .optional || clientCertificates == .required, trustEvaluation == .manual {
            throw Self.invalid(
                "sessionTickets store the verdict on a client certificate, but trustEvaluation is .manual: set it to .delegate"
            )
        }
    }
}
