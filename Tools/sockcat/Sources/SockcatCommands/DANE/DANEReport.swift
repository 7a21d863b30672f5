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
    }

    /// Describes a handshake in which the server had to match the records.
    init(_ server: ServerRecords, _ observation: Observation) {
        (baseDomain, records) = (server.baseDomain, server.records.map(\.text))
        if case .matched(let record) = observation.session?.dane {
            (status, matched) = (.matched, record.text)
        } else {
            status = .notMatched
        }
    }
}

extension ReportText {
    /// The line about the records, without a line for each of them.
    static func text(of dane: DANEReport, _ style: TerminalStyle) -> PrintableText {
        switch dane.status {
        case .matched: style.green("matched") + " \(dane.matched ?? "")"
        case .notMatched: style.red("not matched")
        }
    }
}
