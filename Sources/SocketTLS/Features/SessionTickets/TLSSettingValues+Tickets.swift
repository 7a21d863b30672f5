extension TLSSettingValues {
    func validateTickets() throws(TLSError) {
        guard case .issued(let count, _) = tickets else { return }
        try Self.validate(count, in: 1...8, "the number of tickets of clients")
        if clientCertificates == .optional || clientCertificates == .required, trustEvaluation == .manual {
            throw Self.invalid(
                "trustEvaluation is .manual, so that no verdict could go with the tickets of clients: use .delegate, or no tickets"
            )
        }
    }
}
