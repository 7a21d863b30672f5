internal import AsyncSockets

/// Whether a server matches its TLSA records.
struct DANEReport: Codable, Equatable, Sendable {
    var status: Status
    /// The host name that owns the records.
    var baseDomain: String?
    /// The records in presentation form.
    var records: [String] = []
    /// The record that the server matched.
    var matched: String?

    enum Status: String, Codable, Sendable {
        /// The server matches a record, and its chain is valid as far as the record requires it.
        case matched
        /// The server must be rejected: no record matches, or the chain is not valid.
        case notMatched
        /// No record can be compared with a certificate, so the server is not authenticated.
        case unusable
        /// DNSSEC has proved that there are no records.
        case noRecords
        /// The names of the server are not signed, so that records would prove nothing.
        case unsigned
        /// It is not known whether there are records. A client must not connect (RFC 7672, section 2.1.2).
        case lookUpFailed
    }

    /// Describes a server that need not match records.
    init(_ status: Status, _ baseDomain: String? = nil) { (self.status, self.baseDomain) = (status, baseDomain) }

    /// Describes a handshake in which the server had to match the records.
    init(_ server: ServerRecords, _ observation: Observation) {
        (baseDomain, records) = (server.baseDomain, server.records.map(\.text))
        if case .matched(let record) = observation.session?.dane {
            (status, matched) = (.matched, record.text)
        } else {
            status = observation.recordsFault?.code == .noUsableTLSARecord ? .unusable : .notMatched
        }
    }
}

extension ReportText {
    /// The line about the records, without a line for each of them.
    static func text(of dane: DANEReport, _ style: TerminalStyle) -> PrintableText {
        switch dane.status {
        case .matched: style.green("matched") + " \(dane.matched ?? "")"
        case .notMatched: style.red("not matched")
        case .unusable: style.red("no usable TLSA record")
        case .noRecords: "no TLSA records"
        case .unsigned: "not available, because the DNS records are not signed"
        case .lookUpFailed: style.red("the look-up of the TLSA records failed")
        }
    }

    /// How a domain names the server.
    static func text(of origin: OriginReport) -> PrintableText {
        "\(origin.record) of \(origin.domain), \(origin.isSigned ? "signed" : "not signed")"
    }
}
