internal import ArgumentParser
internal import AsyncSockets

/// The options that authenticate a server by TLSA records (DANE).
struct DANEOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "A TLSA record of the server, such as \"3 1 1 HEX\" (DANE). The server must match one of the records. Pass "
                + "all records that DNSSEC has validated for its host and port: repeat the option.", valueName: "record"),
        transform: TLSAArgument.record)
    var tlsa: [TLSARecord] = []

    @Flag(
        help:
            "Look up the server's TLSA records, which the server must match. Requires a validating resolver on this machine.")
    var dane = false

    func validate() throws {
        if dane, !tlsa.isEmpty { throw ValidationError("--dane and --tlsa cannot be combined: pass the records or look them up") }
    }

    var choice: DANEChoice { dane ? .lookUp : tlsa.isEmpty ? .none : .records(tlsa) }
}

/// A TLSA record on the command line, in presentation form.
enum TLSAArgument {
    static func record(_ text: String) throws -> TLSARecord {
        do {
            return try TLSARecord(text)
        } catch {
            throw Failure.usage(error.message, advice: "write a record such as \"3 1 1 8cb0fc6c…\", in quotation marks")
        }
    }
}

extension DANEChoice {
    /// Returns why the records cannot be combined with other options for the server's trust, or `nil`.
    ///
    /// - Parameters:
    ///   - prefix: The prefix of the options, which is "to-" for a relay's target.
    ///   - other: The options that would accept servers without a matching record, and whether each is given.
    func contradiction(prefix: String = "", hasAuthorities: Bool, other: [(name: String, isGiven: Bool)]) -> String? {
        let own: String
        switch self {
        case .none: return nil
        case .records(let records):
            own = "tlsa"
            if hasAuthorities, !records.contains(where: { $0.usage == .pkixTA || $0.usage == .pkixEE }) {
                return "--\(prefix)ca has no effect with these TLSA records: only records with usage 0 or 1 need authorities"
            }
        case .lookUp: own = "dane"
        }
        guard let other = other.first(where: \.isGiven) else { return nil }
        return "--\(prefix)\(own) and --\(prefix)\(other.name) cannot be combined: the server must match a TLSA record"
    }
}
