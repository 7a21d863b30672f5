import Foundation
import Testing

@testable import SockcatCommands

/// What a person at a terminal sees and types.
@Suite(.timeLimit(.minutes(1))) struct TerminalTests {
    private static let (endOfInput, interrupt) = ("\u{4}", "\u{3}")

    let folder: TestFolder

    init() throws { folder = try TestFolder() }

    @Test func theEndOfInputClosesTheSendingSide() async throws {
        let server = try await SockcatServer("listen --exec 'echo ready; cat; echo end' 127.0.0.1:0", in: folder)
        let terminal = try Terminal(running: "connect 127.0.0.1 \(server.port)")
        try await terminal.expect("ready")
        try await terminal.type("typed\n")
        try await terminal.expect("typed")
        try await terminal.type(Self.endOfInput)
        try await terminal.expect("end")
        #expect(await terminal.ended() == 0)
        await server.stop()
    }

    @Test func theProgramEndsWhenTheServerCloses() async throws {
        let server = try await SockcatServer("listen --exec 'echo bye' 127.0.0.1:0", in: folder)
        let terminal = try Terminal(running: "connect 127.0.0.1 \(server.port)")
        try await terminal.expect("bye")
        #expect(await terminal.ended() == 0)
        await server.stop()
    }

    @Test func interruptEndsTheProgram() async throws {
        let server = try await SockcatServer("listen --exec 'echo ready; cat' 127.0.0.1:0", in: folder)
        let terminal = try Terminal(running: "connect 127.0.0.1 \(server.port)")
        try await terminal.expect("ready")
        try await terminal.type(Self.interrupt)
        #expect(await terminal.ended() == 130)
        await server.stop()
    }

    @Test(arguments: ["", "NO_COLOR=1"]) func warningsAreRedUnlessColorsAreUnwanted(variable: String) async throws {
        let terminal = try Terminal(running: "connect --tls --insecure 127.0.0.1 1", environment: "TERM=xterm \(variable)")
        try await terminal.expect(
            variable.isEmpty ? "\u{1B}[31;1mwarning: --insecure" : "\nwarning: --insecure", startingWith: "\n")
        #expect(await terminal.ended() == ExitStatus.connectFailed.rawValue)
    }
}

/// A pseudoterminal on which `sockcat` runs.
private final class Terminal: Sendable {
    /// TIOCSPTLCK and TIOCGPTN, macros that Swift does not import.
    private static let (setLock, getNumber): (UInt, UInt) = (0x4004_5431, 0x8004_5430)

    private let child: ChildProcess
    private let reader: DescriptorReader
    private let writer: DescriptorWriter

    init(running arguments: String, environment: String = "TERM=xterm") throws {
        let descriptor = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
        var (lock, number): (Int32, Int32) = (0, 0)
        guard descriptor >= 0, ioctl(descriptor, Self.setLock, &lock) == 0, ioctl(descriptor, Self.getNumber, &number) == 0 else {
            throw Failure("cannot open a terminal: \(ErrorText.of(errno))")
        }
        let path = "/dev/pts/\(number)"
        reader = try DescriptorReader(descriptor, name: "the terminal", isOwner: true)
        writer = try DescriptorWriter(descriptor, name: "the terminal")
        child = try ChildProcess(
            shell:
                "exec env -u NO_COLOR \(environment) setsid -c -w \(SockcatProcess.path) \(arguments) < \(path) > \(path) 2>&1",
            environment: [:])
    }

    func type(_ text: String) async throws { try await writer.write(Data(text.utf8)) }

    /// Reads until a text appears on the screen.
    func expect(_ text: String, startingWith start: String = "") async throws {
        var screen = start
        while !screen.contains(text) {
            guard let bytes = try await reader.read() else { throw Failure("\"\(text)\" is missing: \(screen)") }
            screen += String(decoding: bytes, as: UTF8.self)
        }
    }

    func ended() async -> Int32 { await child.wait() }
}
