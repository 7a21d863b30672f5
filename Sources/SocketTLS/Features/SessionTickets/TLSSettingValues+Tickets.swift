extension TLSSettingValues {
    func validateTickets() throws(TLSError) {
        guard case .issued(let count, _) = tickets else { return }
        try Self.validate(count, in: 1...8, "the number of tickets for clients")
        if clientCertificates == .optional || clientCertificates == .required, trustEvaluation == .manual {
            throw Self.invalid(
                "client tickets require a stored verdict, but trustEvaluation is .manual: use .delegate or no tickets"
            )
        }
    }
}
