internal import COpenSSL

/// The facts that our tickets contain in addition to the session.
struct Stamp {
    /// When the session expires, in seconds of `SessionTickets.clock`.
    let end: Int
    /// When the ticket was created, by the same clock; -1 if early data is not accepted.
    let issued: Int
    /// The digest of the client's server name (`TLSClientHello.nameDigest`) if the settings were selected for
    /// that name, or else 0.
    let name: Int

    init(end: Int, issued: Int, name: Int) {
        (self.end, self.issued, self.name) = (end, issued, name)
    }

    init?(of session: OpaquePointer) {
        var bytes: UnsafeMutableRawPointer?
        var count = 0
        let size = MemoryLayout<Int>.size
        guard SSL_SESSION_get0_ticket_appdata(session, &bytes, &count) == 1, let bytes, count == 3 * size else { return nil }
        end = bytes.loadUnaligned(as: Int.self)
        issued = bytes.loadUnaligned(fromByteOffset: size, as: Int.self)
        name = bytes.loadUnaligned(fromByteOffset: 2 * size, as: Int.self)
    }

    func put(into session: OpaquePointer) -> Bool {
        [end, issued, name].withUnsafeBytes { SSL_SESSION_set1_ticket_appdata(session, $0.baseAddress, $0.count) == 1 }
    }
}
