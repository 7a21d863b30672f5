import Testing

/// The expected results of each call on a new socket, and of each call after another one: one row for each
/// first call, and one column for each second call.
struct CallTable<Call: RawRepresentable & CaseIterable & Equatable> where Call.RawValue == String {
    private let rows: [String: [String]]

    /// - Parameter text: Lines with the name of the first call, or `nothing`, and a cell for each
    ///   second call.
    init(_ text: String) {
        rows = Dictionary(
            uniqueKeysWithValues: text.split(separator: "\n").map { line in
                let cells = line.split(separator: " ").map { String($0) }
                return (cells[0], Array(cells.dropFirst()))
            })
    }

    /// Returns the results of both calls.
    func expected(_ first: Call, _ second: Call) throws -> [String] {
        try [cell(of: first, after: "nothing"), cell(of: second, after: first.rawValue)]
    }

    private func cell(of call: Call, after first: String) throws -> String {
        let row = try #require(rows[first])
        try #require(row.count == Call.allCases.count)
        return row[try #require(Array(Call.allCases).firstIndex(of: call))]
    }
}
