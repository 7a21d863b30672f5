// Measurements in separate processes, because the test process has other threads, and libdispatch traps if it
// has no descriptor to count the workers of the global queues with. Only `BusyProbe`, `DiskProbe`,
// `EnvironmentProbe` and `ResourceProbe` use a global queue and Swift concurrency.

internal import AsyncSockets
internal import Dispatch
internal import Foundation
internal import SocketBuffers
internal import SocketCore

/// A probe has found a fault.
struct ProbeFailure: Error, CustomStringConvertible {
    let description: String
}

@main
enum EngineProbe {
    static func main() {
        do {
            switch CommandLine.arguments.dropFirst().first {
            case "descriptors": try DescriptorProbe.run()
            case "threads": try ThreadProbe.run()
            case "connecting": try ConnectProbe.run()
            case "scopes": try NamespaceProbe.runScoped()
            case "no-ipv6": try NamespaceProbe.runWithoutIPv6()
            case "no-resolver": try NamespaceProbe.runWithoutResolver()
            case "datagrams": try DatagramProbe.run(otherNamespace: CommandLine.arguments.dropFirst(2).first ?? "")
            case "path-server": try PathProbe.runServer(CommandLine.arguments.dropFirst(2).first ?? "")
            case "path-client": try PathProbe.runClient(CommandLine.arguments.dropFirst(2).map { $0 })
            case "memory": try MemoryProbe.run()
            case "exit": try ExitProbe.run()
            case "trims": try MemoryProbe.trimTwice()
            case "arena": try MemoryProbe.trimTheEndOfAnArena()
            case "resources": try ResourceProbe.run(CommandLine.arguments.dropFirst(2).first ?? "")
            case "loops": try LoopProbe.run()
            case "shortage": try ShortageProbe.run()
            case "refused":
                try RefusalProbe.run(
                    CommandLine.arguments.dropFirst(2).first ?? "",
                    CommandLine.arguments.dropFirst(3).first.flatMap { CInt($0) } ?? 0)
            case "skips": try RefusalProbe.runSkips()
            case "refused-wait": try RefusalProbe.runLoop()
            case "processors": try ProcessorProbe.run(kernelSize: CommandLine.arguments.dropFirst(2).first.flatMap { CInt($0) })
            case "sendfile": try SendfileProbe.run(CommandLine.arguments.dropFirst(2).first.flatMap { CInt($0) } ?? 0)
            case "trust": try TrustProbe.run()
            case "openssl.cnf": try ConfigurationProbe.run(CommandLine.arguments.dropFirst(2).first ?? "")
            case "tls-server":
                try TLSServerProbe.run(
                    CommandLine.arguments.dropFirst(2).first ?? "ecdsa", policy: CommandLine.arguments.dropFirst(3).first ?? "")
            case "token-server": try TLSServerProbe.run(token: CommandLine.arguments.dropFirst(2).map { $0 })
            case "activation": try ActivationProbe.run(CommandLine.arguments.dropFirst(2).first ?? "")
            case "listener": try ActivationProbe.runListener(CommandLine.arguments.dropFirst(2).first ?? "")
            case "ticket-server": try TicketServerProbe.run(CommandLine.arguments.dropFirst(2).map { $0 })
            case "disk": try DiskProbe.run("/mnt")
            case "reloads": try ReloadProbe.run(CommandLine.arguments.dropFirst(2).first.flatMap { Int($0) } ?? 100_000)
            case "key-log": try KeyLogProbe.run()
            case "held": try HeldLoopProbe.run()
            case "environment": try EnvironmentProbe.run(CommandLine.arguments.dropFirst(2).map { $0 })
            case "busy": try BusyProbe.run(CommandLine.arguments.dropFirst(2).first ?? "")
            default: throw ProbeFailure(description: "say which probe")
            }
        } catch {
            print("failed: \(error)")
            exit(1)
        }
    }
}

/// Items from other threads, for one thread that waits.
final class Mailbox<Item: Sendable>: Sendable {
    private let items = Locked<[Item]>([])
    private let arrivals = DispatchSemaphore(value: 0)

    func put(_ item: Item) {
        items.withLock { $0.append(item) }
        arrivals.signal()
    }

    func next() throws -> Item {
        guard arrivals.wait(timeout: .now() + 60) == .success else {
            throw ProbeFailure(description: "nothing came for a minute")
        }
        return items.withLock { $0.removeFirst() }
    }
}
