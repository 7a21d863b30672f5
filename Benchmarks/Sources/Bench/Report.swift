internal import Foundation

/// The results of a run in the formats to print and to store.
struct Report {
    let text: String
    let json: Data
    /// The charts, by the suffix of their file names.
    let charts: [String: String]

    func write(to folder: URL, named name: String) throws {
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        try Data(text.utf8).write(to: folder.appending(path: "\(name).txt"))
        try json.write(to: folder.appending(path: "\(name).json"))
        for (part, chart) in charts { try Data(chart.utf8).write(to: folder.appending(path: "\(name)-\(part).svg")) }
    }

    static func encode(_ value: some Encodable) -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        return (try? encoder.encode(value)) ?? Data()
    }
}

/// Formats a table. The first columns are left-aligned, the others right-aligned.
struct TextTable {
    private let leftColumns: Int
    private var rows: [[String]] = []

    init(leftColumns: Int = 1) { self.leftColumns = leftColumns }

    mutating func add(_ cells: String...) { rows.append(cells) }
    mutating func add(_ cells: [String]) { rows.append(cells) }

    var isEmpty: Bool { rows.isEmpty }

    var text: String {
        let count = rows.map(\.count).max() ?? 0
        let widths = (0..<count).map { column in rows.map { $0.count > column ? $0[column].count : 0 }.max() ?? 0 }
        return rows.map { row in
            let cells = row.enumerated().map { column, cell in
                let padding = String(repeating: " ", count: widths[column] - cell.count)
                return column < leftColumns ? cell + padding : padding + cell
            }
            return ("  " + cells.joined(separator: "   ")).trimmingSuffix(" ")
        }.joined(separator: "\n")
    }
}

extension String {
    fileprivate func trimmingSuffix(_ character: Character) -> String {
        var result = self
        while result.last == character { result.removeLast() }
        return result
    }
}

extension Double {
    /// Formats three significant digits, with at most three after the decimal point.
    var short: String {
        let digits = abs(self) >= 100 ? 0 : abs(self) >= 10 ? 1 : abs(self) >= 0.1 ? 2 : 3
        return String(format: "%.\(digits)f", self)
    }
}

extension Estimate {
    var text: String { "\(median.short) [\(low.short)–\(high.short)]" }
}
