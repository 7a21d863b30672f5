import AsyncSocketsTesting
import SocketTestSupport
import Testing

@testable import SocketCore

/// Compares the groups with lists, and the choice of the member to replace.
@Suite struct SourceGroupsTests {
    private struct Model {
        struct Member {
            let source: Int
            let slot: SourceGroups<Int>.Slot
            /// `nil` for a proven member.
            var trial: (number: Int, place: SourceGroups<Int>.Place, beginning: Deadline)?
        }

        var members: [Member] = []
        private var reached: [Int: Int] = [:]
        private var steps = 0

        func unproven(of source: Int) -> [Member] {
            members.filter { $0.source == source && $0.trial != nil }.sorted { ($0.trial?.number ?? 0) < ($1.trial?.number ?? 0) }
        }

        mutating func noteCount(of source: Int) {
            steps += 1
            reached[source] = steps
        }

        /// The oldest member of the source with the most unproven members. Among equal sources, the one that
        /// reached its number first counts.
        var oldest: Member? {
            let sources = Set(members.filter { $0.trial != nil }.map(\.source))
            let largest = sources.min {
                (-unproven(of: $0).count, reached[$0] ?? 0) < (-unproven(of: $1).count, reached[$1] ?? 0)
            }
            return largest.flatMap { unproven(of: $0).first }
        }
    }

    private static func key(_ source: Int) throws -> SourceKey { SourceKey(try .loopback("10.0.0.\(source + 1)", port: 1)) }

    @Test(arguments: UInt64(0)..<20) func theGroupsAgreeWithAModel(seed: UInt64) throws {
        var (dice, groups, model) = (SeededGenerator(seed: seed), SourceGroups<Int>(), Model())
        var now = Deadline.now
        for step in 0..<1_000 {
            now = try #require(Deadline(after: Double.random(in: 0...0.1, using: &dice), from: now))
            let source = Int.random(in: 0..<4, using: &dice)
            let index = model.members.isEmpty ? nil : Int.random(in: 0..<model.members.count, using: &dice)
            switch Int.random(in: 0..<5, using: &dice) {
            case 0, 1:
                let limit = Int.random(in: 0...8, using: &dice)
                let slot = groups.enter(try Self.key(source), limit: limit)
                #expect((slot != nil) == (model.members.count { $0.source == source } < limit))
                if let slot { model.members.append(Model.Member(source: source, slot: slot)) }
            case 2:
                guard let index, model.members[index].trial == nil else { continue }
                let member = model.members[index]
                model.members[index].trial = (step, groups.append(step, of: member.slot, at: now), now)
                model.noteCount(of: member.source)
            case 3:
                guard let index, let trial = model.members[index].trial.take() else { continue }
                #expect(groups.remove(trial.place) == trial.number)
                model.noteCount(of: model.members[index].source)
            default:
                guard let index, model.members[index].trial == nil else { continue }
                groups.leave(model.members.remove(at: index).slot)
            }
            try expectAgreement(of: groups, with: model, at: now)
        }
    }

    private func expectAgreement(of groups: SourceGroups<Int>, with model: Model, at now: Deadline) throws {
        #expect(groups.sourceCount == Set(model.members.map(\.source)).count)
        #expect(groups.unprovenCount == model.members.count { $0.trial != nil })
        for source in 0..<4 {
            let key = try Self.key(source)
            #expect(groups.count(of: key) == model.members.count { $0.source == source })
            #expect(groups.unprovenCount(of: key) == model.unproven(of: source).count)
            #expect(groups.oldest(of: key) == model.unproven(of: source).first?.trial?.number)
        }
        let oldest = model.oldest?.trial
        #expect(groups.oldestOfLargestSource == oldest?.number)
        switch groups.candidate(at: now) {
        case .none: #expect(oldest == nil)
        case .later(let time): #expect(oldest.flatMap { Deadline(after: 1, from: $0.beginning) } == time && now < time)
        case .member(let number): #expect(oldest?.number == number && now.seconds(since: oldest?.beginning ?? now) >= 1)
        }
    }
}
