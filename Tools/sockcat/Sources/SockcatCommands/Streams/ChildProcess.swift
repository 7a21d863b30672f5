internal import FoundationEssentials
internal import Glibc
internal import Synchronization

/// A shell command. Its standard input and output are pipes to this process.
final class ChildProcess: Sendable {
    /// Held from the creation of pipes until the child has started. Otherwise another child could inherit an
    /// end before it is marked close-on-exec, and the reader of the pipe would never see the end.
    private static let starting = Mutex(())

    let input: DescriptorWriter
    let output: DescriptorReader
    private let identifier: pid_t
    private let hasExited: Mutex<Bool>
    /// Started before the command, so that a missing thread cannot leave a command that is never waited for.
    private let waiter: SerialThread

    /// Starts `/bin/sh -c command` in its own process group, with additional environment variables.
    init(shell command: String, environment: [String: String]) throws {
        waiter = try SerialThread()
        let (child, stdin, stdout) = try Self.starting.withLock { _ in
            let stdin = try DescriptorPair.pipe()
            let childInput = DescriptorOwner(stdin.readEnd)
            let writer = try DescriptorWriter(stdin.writeEnd, name: "the input of the command", isOwner: true)
            let stdout = try DescriptorPair.pipe()
            let childOutput = DescriptorOwner(stdout.writeEnd)
            let reader = try DescriptorReader(stdout.readEnd, name: "the output of the command", isOwner: true)
            defer { for end in [childInput, childOutput] { end.close() } }
            let child = try Self.spawn(command, environment, stdin: stdin.readEnd, stdout: stdout.writeEnd)
            return (child, writer, reader)
        }
        (identifier, input, output) = (child, stdin, stdout)
        hasExited = Mutex(false)
    }

    private static func spawn(
        _ command: String, _ environment: [String: String], stdin: Int32, stdout: Int32
    ) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, stdin, STDIN_FILENO)
        posix_spawn_file_actions_adddup2(&actions, stdout, STDOUT_FILENO)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        restoreSignals(&attributes)
        var identifier: pid_t = 0
        // The sockets of a service manager belong to this process (sd_listen_fds(3)).
        let inherited = ProcessInfo.processInfo.environment.filter { !$0.key.hasPrefix("LISTEN_") }
        let variables = inherited.merging(environment) { $1 }.map { "\($0)=\($1)" }
        let status = CStrings.with(["sh", "-c", command]) { arguments in
            CStrings.with(variables) { posix_spawn(&identifier, "/bin/sh", &actions, &attributes, arguments, $0) }
        }
        guard status == 0 else { throw Failure("cannot start \"\(command)\": \(ErrorText.of(status))") }
        return identifier
    }

    /// The child handles signals as usual. In its own process group, it does not receive Ctrl-C.
    private static func restoreSignals(_ attributes: inout posix_spawnattr_t) {
        var (signals, mask) = (sigset_t(), sigset_t())
        sigemptyset(&mask)
        sigemptyset(&signals)
        for signal in [SIGPIPE, SIGINT, SIGTERM] { sigaddset(&signals, signal) }
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setsigmask(&attributes, &mask)
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP))
    }

    /// Sends SIGTERM to the process group, unless the shell has exited.
    func terminate() { send(SIGTERM) }

    /// Sends a signal to the process group, unless the shell has exited.
    func send(_ signal: Int32) {
        hasExited.withLock { if !$0 { kill(-identifier, signal) } }
    }

    /// Waits until the shell exits. Returns its exit code, or 128 plus the number of the signal that killed
    /// it.
    func wait() async -> Int32 {
        await withCheckedContinuation { continuation in
            waiter.run { continuation.resume(returning: self.blockingWait()) }
        }
    }

    private func blockingWait() -> Int32 {
        var information = siginfo_t()
        // Without WNOWAIT, the number could belong to another process by the time `terminate` uses it.
        while waitid(P_PID, id_t(identifier), &information, WEXITED | WNOWAIT) < 0, errno == EINTR {}
        var status: Int32 = 0
        hasExited.withLock { hasExited in
            waitpid(identifier, &status, 0)
            hasExited = true
        }
        let signal = status & 0x7F
        return signal == 0 ? status >> 8 & 0xFF : 128 + signal
    }
}

private enum CStrings {
    /// Calls `body` with a null-terminated array of C strings.
    static func with<Result>(
        _ strings: [String], _ body: ([UnsafeMutablePointer<CChar>?]) -> Result
    ) -> Result {
        let pointers = strings.map { strdup($0) } + [nil]
        defer { for pointer in pointers { free(pointer) } }
        return body(pointers)
    }
}
