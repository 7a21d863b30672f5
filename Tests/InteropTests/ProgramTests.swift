import Testing

@Suite(.timeLimit(.minutes(20))) struct ProgramTests {
    @Test func aProgramEndsWhenItIsAskedTo() async throws {
        let program = try Program(["cat"])
        program.stop()
        let terminated: Int32 = 15
        #expect(await program.exitStatus() == terminated)
    }
}
