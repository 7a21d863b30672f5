import ArgumentParser
import SockcatCommands
import Testing

@Suite struct SockcatTests {
    @Test func theCommandHasAName() {
        #expect(Sockcat.configuration.commandName == "sockcat")
    }
}
