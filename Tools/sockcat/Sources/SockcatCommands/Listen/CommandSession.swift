internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// Forwards a client's data to a shell command, and the command's output to the client.
struct CommandSession: Sendable {
    private enum Event: Sendable {
        case clientEnded
        case commandEnded
    }

    let socket: AsyncSocket
    let command: String
    let reporter: Reporter

    func run() async throws {
        let child = try ChildProcess(shell: command, environment: environment)
        do {
            try await exchange(with: child)
        } catch {
            // The listener cancels a task only if its connection must close immediately.
            child.send(Task.isCancelled ? SIGKILL : SIGTERM)
            _ = await child.wait()
            throw error
        }
        let status = await withTaskCancellationHandler {
            await child.wait()
        } onCancel: {
            child.send(SIGKILL)
        }
        reporter.detail("\(socket.connectedAddress.text): the command exited with code \(status)")
    }

    /// Returns when the command has closed its output.
    private func exchange(with child: ChildProcess) async throws {
        try await withThrowingTaskGroup(of: Event.self) { group in
            group.addTask { try await forward(to: child) }
            group.addTask { try await forward(from: child) }
            while let event = try await group.next() {
                guard case .commandEnded = event else { continue }
                return group.cancelAll()
            }
        }
    }

    private func forward(to child: ChildProcess) async throws -> Event {
        defer { child.input.finish() }
        var isReading = true
        for try await bytes in socket.chunks where isReading {
            do {
                try await child.input.write(bytes)
            } catch let failure as Failure where failure.status == .outputClosed {
                // The command ignores the rest of its input, but may still write.
                isReading = false
            }
        }
        return .clientEnded
    }

    private func forward(from child: ChildProcess) async throws -> Event {
        while let bytes = try await child.output.read() { try await socket.write(bytes) }
        socket.closeWriteStream()
        return .commandEnded
    }

    private var environment: [String: String] {
        var variables = ["SOCKCAT_PEER": socket.connectedAddress.text]
        if let session = socket.tlsSession {
            variables["SOCKCAT_TLS"] = session.protocolVersion.description
            variables["SOCKCAT_CLIENT"] = session.peerCertificates.first?.subject
        }
        return variables
    }
}
