internal import COpenSSL

extension TLSEngine {
    /// Lets OpenSSL send the pending tickets together with the next data, in one transmission instead of two.
    /// OpenSSL creates the tickets in its next writing call: make that call, then reset `facts.ticketKey`.
    func addTickets() {
        // Called before the lock is taken, because the source of shared keys is user code.
        facts.ticketKey = context.tickets?.givenKey
        for _ in 0..<ticketsToSend { _ = exporter.excluding { OpenSSLCall.perform(on: ssl) { SSL_new_session_ticket(ssl) } } }
        ticketsToSend = 0
    }

    package var hasTickets: Bool { ticketsToSend > 0 }

    /// Sends the pending tickets without data. Call this if no data followed the handshake in the same
    /// turn, because a client may wait for its tickets before it sends data.
    package func sendTickets() {
        guard ticketsToSend > 0, !hasSentClose else { return }
        if case .failed = phase { return }
        addTickets()
        _ = exporter.excluding { OpenSSLCall.perform(on: ssl) { SSL_do_handshake(ssl) } }
        facts.ticketKey = nil
    }
}
