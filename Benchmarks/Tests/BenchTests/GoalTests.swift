import Testing

@testable import bench

@Test func everyGoalNamesAWorkloadThatMeasuresIt() {
    for goal in Goal.all {
        #expect(Workload.all.contains { $0.name == goal.workload && $0.metrics.contains(goal.metric) })
    }
}

@Test func everyGoalNamesServersThatCanRunItsWorkload() throws {
    for goal in Goal.all {
        let workload = try #require(Workload.all.first { $0.name == goal.workload })
        for name in [goal.server, goal.peer] {
            #expect(Server.all.contains { $0.name == name && $0.can(workload) }, "\(name) in \(goal.workload)")
        }
    }
}

@Test func theRowsWithGoalsMeasureTheServersOfTheirGoals() throws {
    for goal in Goal.all {
        let workload = try #require(Workload.all.first { $0.name == goal.workload }).withServersOfGoals
        let measured = try #require(workload.servers)
        #expect(measured.contains(goal.server) && measured.contains(goal.peer))
        #expect(Goal.servers.isSuperset(of: measured))
        // SwiftNIO has no DTLS.
        let all = try #require(Workload.all.first { $0.name == goal.workload }).servers
        #expect(all.map { Set($0).isSuperset(of: measured) } ?? true, "\(goal.workload)")
    }
}

@Test func everyServerHasANameOfItsOwn() {
    #expect(Set(Server.all.map(\.name)).count == Server.all.count)
}

@Test func everyCountOfInstructionsNamesAWorkload() {
    for count in InstructionRun.counts {
        #expect(Workload.all.contains { $0.name == count.workload })
    }
}

@Test func theInstructionsOfTasksAreBoundByThoseOfTheInlineDelegate() throws {
    let count = try #require(InstructionRun.counts.first { $0.workload == "plain-echo-64B-64" })
    let goal = try #require(count.goal(of: Server.oursWithTasks, inline: 1000))
    #expect(abs(goal - 1150) < 1e-9)
    #expect(count.goal(of: Server.oursWithTasks, inline: nil) == nil)
    #expect(count.goal(of: Server.ours, inline: 1000) == 3500)
    #expect(count.goal(of: Server.nioWithTasks, inline: 1000) == nil)
}

@Test func theDropInModuleIsBoundByADelegateWithAQueue() throws {
    let count = try #require(InstructionRun.counts.first { $0.workload == "plain-echo-64B-64" })
    let goal = try #require(count.goal(of: Server.oursWithCocoa, inline: 500, queue: 1000))
    #expect(abs(goal - 1300) < 1e-9)
    #expect(count.goal(of: Server.oursWithCocoa, inline: 1000) == nil)
    let server = try #require(Server.all.first { $0.name == Server.oursWithCocoa })
    #expect(Workload.all.filter { server.can($0) }.map(\.name) == ["plain-echo-64B-64"])
}

@Test func bulkDatagramsAreBoundByTheFloor() throws {
    let count = try #require(InstructionRun.counts.first { $0.workload == "udp-receive" })
    let goal = try #require(count.goal(of: Server.ours, inline: 1000, floor: 400))
    #expect(abs(goal - 500) < 1e-9)
    #expect(count.goal(of: Server.ours, inline: 1000) == nil)
}

@Test func slowTasksDoNotSetTheRateOfAnOpenLoop() {
    let paced = Workload.all.filter { if case .part = $0.pace { true } else { false } }
    #expect(!paced.isEmpty)
    for server in Server.all where [Server.nioWithTasks, Server.nioWithTasksOnLoop].contains(server.name) {
        #expect(!paced.contains { server.can($0) })
    }
}
