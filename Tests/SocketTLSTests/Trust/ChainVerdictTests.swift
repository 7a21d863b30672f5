import COpenSSL
import Foundation
import SocketTLS
import Testing

/// Compares this library's verdicts on random chains with those of plain OpenSSL. Set CHAIN_SEED and
/// CHAIN_COUNT in the environment to repeat a run or a single chain, or to try more chains.
@Suite struct ChainVerdictTests {
    /// The results of many chains.
    private struct Tally {
        var trusted = 0
        var refused: [Int32: Int] = [:]
        var stricter: [ChainCase.Rule: Int] = [:]
        var differences: [String] = []

        var summary: String {
            let codes = refused.sorted { $0.value > $1.value }.map {
                "\($0.value)x \($0.key) \(X509_verify_cert_error_string(Int($0.key)).map { String(cString: $0) } ?? "")"
            }
            let rules = stricter.map { "\($0.value)x \($0.key)" }.sorted()
            return "\(trusted) trusted by both; refused by this library alone: \(rules); refused by both: "
                + "\(refused.values.reduce(0, +)) \(codes); other differences: \(differences.count)"
        }

        mutating func judge(_ chain: ChainCase) throws {
            let (plain, path) = try chain.plainVerdict()
            let (ours, hasDepth) = try chain.verdict()
            let rules = chain.brokenRules(along: path)
            if plain.isTrusted, !rules.isEmpty {
                // The reason must be one of the rules that the chain breaks.
                guard rules.contains(where: { $0.code == ours.code }) else {
                    return differences.append("\(rules) broken, and \(ours): \(chain.description)")
                }
                for rule in rules { stricter[rule, default: 0] += 1 }
            } else if ours.code != plain.code || (hasDepth && ours.depth != plain.depth) {
                differences.append("OpenSSL: \(plain), this library: \(ours): \(chain.description)")
            } else if plain.isTrusted {
                trusted += 1
            } else {
                refused[plain.code, default: 0] += 1
            }
        }
    }

    private static let environment = ProcessInfo.processInfo.environment
    private static let count = environment["CHAIN_COUNT"].flatMap { Int($0) } ?? 200

    /// Tests consecutive chains, each with its own seed.
    private func tally(from seed: UInt64) async throws -> Tally {
        var tally = Tally()
        for number in 0..<Self.count {
            var generator = ChainGenerator(seed: seed &+ UInt64(number))
            let chain = try generator.make()
            // Other tests need the thread too.
            await Task.yield()
            do { try tally.judge(chain) } catch { tally.differences.append("\(error)") }
        }
        print("chains from CHAIN_SEED=\(seed) on: \(tally.summary)")
        return tally
    }

    @Test func verdictsAreThoseOfOpenSSLButForFourRules() async throws {
        let seed = Self.environment["CHAIN_SEED"].flatMap { UInt64($0) } ?? .random(in: 0...UInt64(UInt32.max))
        let tally = try await tally(from: seed)
        #expect(tally.differences.isEmpty, "\(tally.differences.joined(separator: "\n"))")
    }

    /// Fixed chains, which show that the random ones are meaningful.
    @Test func chainsOfAllKindsAreTried() async throws {
        let tally = try await tally(from: 1)
        #expect(tally.differences.isEmpty, "\(tally.differences.joined(separator: "\n"))")
        #expect(tally.trusted > Self.count / 10)
        #expect(tally.refused.count > 15)
        #expect(tally.stricter.count == ChainCase.Rule.allCases.count)
    }
}
