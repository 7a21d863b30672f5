internal import COpenSSL

/// When a server sends its tickets, in TLS 1.3.
extension TLSEngine {
    /// Has OpenSSL send the tickets that wait ahead of the next data: one message to the peer, and not two.
    /// Its next call that writes makes them: call that, and then forget `facts.ticketKey`.
    func addTickets() {
        // Before the lock, because the source of shared keys is code of the program.
        facts.ticketKey = context.tickets?.givenKey
        for _ in 0..<ticketsToSend { _ = exporter.excluding { OpenSSLCall.perform(on: ssl) { SSL_new_session_ticket(ssl) } } }
        ticketsToSend = 0
    }

    /// Tickets wait for the next data.
    package var hasTickets: Bool { ticketsToSend > 0 }

    /// Sends the tickets that wait for the next data, without data. Call it when none has followed the
    /// handshake in the same turn: a client may wait for its tickets before it says anything.
    package func sendTickets() {
        guard ticketsToSend > 0, !hasSentClose else { return }
        if case .failed = phase { return }
        addTickets()
        _ = exporter.excluding { OpenSSLCall.perform(on: ssl) { SSL_do_handshake(ssl) } }
        facts.ticketKey = nil
    }
}
