import Foundation
import SocketTestTraits
import Testing

/// Runs each target with the inputs that cover what the fuzzer has reached, and with those that once failed.
@Suite(.serialized, .timeLimit(.patient)) struct ReplayTests {
    @Test(arguments: FuzzTarget.all.map(\.name)) func everyInputKeepsThePromises(name: String) throws {
        let target = try #require(FuzzTarget.named(name))
        let inputs = try Self.corpus(of: name)
        try #require(!inputs.isEmpty, "the corpus is empty")
        for input in inputs {
            try #require(input.count <= target.maximumLength)
            #expect(throws: Never.self, "\(Data(input).base64EncodedString())") { try target.run(FuzzInput(input)) }
        }
    }

    @Test(arguments: FuzzTarget.all.map(\.name)) func inputsMayEndAnywhere(name: String) throws {
        let target = try #require(FuzzTarget.named(name))
        let shortest = try Self.corpus(of: name).sorted { $0.count < $1.count }.prefix(8)
        for input in shortest {
            for count in Set([0, 1, input.count / 3, input.count / 2, input.count - 1]) where count < input.count {
                #expect(throws: Never.self) { try target.run(FuzzInput(Array(input.prefix(count)))) }
            }
        }
    }

    @Test func everyTargetHasACorpus() throws {
        let files = try FileManager.default.contentsOfDirectory(atPath: Self.folder.path)
        #expect(Set(files) == Set(FuzzTarget.all.map { $0.name + ".txt" }))
    }

    private static let folder = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "Corpora")

    private static func corpus(of name: String) throws -> [[UInt8]] {
        let text = try String(contentsOf: folder.appending(path: name + ".txt"), encoding: .utf8)
        return try text.split(separator: "\n").filter { !$0.hasPrefix("#") }.map { line in
            try [UInt8](#require(Data(base64Encoded: String(line)), "a line is not Base64"))
        }
    }
}
