import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct ProgramTests {
    @Test func aProgramEndsWhenItIsAskedTo() async throws {
        let program = try Program(["cat"])
        program.stop()
        let terminated: Int32 = 15
        #expect(await program.exitStatus() == terminated)
    }

    /// A program may exit before it has read its input.
    @Test func aWriteToAProgramThatHasEndedDoesNotEndTheTests() async throws {
        let program = try Program(["true"])
        #expect(await program.exitStatus() == 0)
        try program.write("a line that is not read\n")
        try program.write("and another one\n")
    }
}
