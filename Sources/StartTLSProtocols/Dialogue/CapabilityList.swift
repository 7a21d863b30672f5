/// Reads a list of capabilities up to a line with a single dot, as in POP3 and NNTP.
struct CapabilityList: Sendable {
    /// The capability for TLS.
    let keyword: String
    private(set) var offersTLS = false

    init(of keyword: String) {
        self.keyword = keyword
    }

    /// Processes a line of the list. Returns whether it is the last one.
    mutating func isComplete(with line: String) -> Bool {
        if line == "." { return true }
        if line.keyword == keyword { offersTLS = true }
        return false
    }
}
