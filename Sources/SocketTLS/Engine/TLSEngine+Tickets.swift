internal import COpenSSL

/// When a server sends its tickets, in TLS 1.3.
extension TLSEngine {
    /// Has OpenSSL send tickets ahead of the next data: one message to the peer, and not two.
    func addTickets() {
        // Before the lock: the source of shared keys is code of the program.
        if ticketsToSend > 0 { events.ticketFacts.key = context.tickets?.givenKey }
        defer { events.ticketFacts.key = nil }
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
    }
}
