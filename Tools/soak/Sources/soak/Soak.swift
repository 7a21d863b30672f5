import AsyncSockets
import Foundation

/// Where a client connects, and how.
struct Route: Sendable, CustomStringConvertible {
    enum Kind: String {
        case plain, tls, startTLS, dtls
    }

    enum Style: String {
        case tasks, inline, queue
    }

    let kind: Kind
    let style: Style
    let port: UInt16
    let count: Int

    /// Parses `tls:tasks:7000:500`.
    init?(_ text: String) {
        let parts = text.split(separator: ":").map(String.init)
        guard parts.count == 4, let kind = Kind(rawValue: parts[0]), let style = Style(rawValue: parts[1]),
            let port = UInt16(parts[2]), let count = Int(parts[3])
        else { return nil }
        (self.kind, self.style, self.port, self.count) = (kind, style, port, count)
    }

    var description: String { "\(kind):\(style):\(port)" }
}

/// The part of Tools/soak/run that uses the library:
///
///     soak serve FOLDER PLANT
///     soak connect FOLDER PLANT SEED PAUSE RAMP ROUTE …
///
/// Both print their counts as JSON each second. They stop on a line of standard input, and exit on the next.
@main
struct Soak {
    let folder: String
    let tally: Tally

    static func main() async {
        let arguments = CommandLine.arguments
        guard arguments.count >= 4, let plant = Plant(rawValue: arguments[3]) else { fail("usage: see Tools/soak/run") }
        let soak = Soak(folder: arguments[2], tally: Tally(plant: plant))
        do {
            if arguments[1] == "serve" { try await soak.serve() } else { try await soak.connect(Array(arguments[4...])) }
        } catch {
            fail("\(error)")
        }
    }

    static func fail(_ text: String) -> Never {
        FileHandle.standardError.write(Data("soak: \(text)\n".utf8))
        exit(EXIT_FAILURE)
    }

    // MARK: - Server

    private func serve() async throws {
        var settings = TLSSettings.server(
            identity: try TLSIdentity(certificateFile: "\(folder)/server.pem", privateKeyFile: "\(folder)/server.key"))
        settings.sessionTickets = .issued(1)
        var datagramSettings = settings
        datagramSettings.minimumVersion = .dtls12
        let (tls, tally) = (settings, tally)
        var ports: [String: UInt16] = [:]
        func listener(_ name: String, _ tls: TLSServerSettings?) throws -> SocketListener {
            let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: tls, maximumConnections: 50_000)
            listener.maximumConnectionsPerSource = 50_000
            ports["\(name):tasks"] = listener.localPort
            return listener
        }
        var servers = [
            TaskServer(listener: try listener("plain", nil), startTLS: nil, tally: tally),
            TaskServer(listener: try listener("tls", tls), startTLS: nil, tally: tally),
        ]
        servers.append(TaskServer(listener: try listener("startTLS", nil), startTLS: tls, tally: tally))
        let datagrams = try DatagramListener(
            port: 0, interface: "127.0.0.1", dtls: datagramSettings, maximumPeers: 10_000, idleTimeout: Datagrams.idleTimeout)
        datagrams.maximumPeersPerSource = 10_000
        ports["dtls:tasks"] = datagrams.localPort
        let delegates = try ["plain", "tls", "startTLS"].flatMap { name in
            try [nil, DispatchQueue(label: "soak.\(name)")].map { queue in
                try accept(name, name == "plain" ? nil : tls, queue, &ports)
            }
        }
        tally.print(["ports": ports])
        let all = servers
        try await withThrowingTaskGroup { group in
            for server in all { group.addTask { try await server.run() } }
            group.addTask { try await Datagrams.serve(datagrams, tally) }
            group.addTask { try await report() }
            try await group.next()
            withExtendedLifetime(delegates) {}
            exit(EXIT_SUCCESS)
        }
    }

    private func accept(
        _ name: String, _ settings: TLSServerSettings?, _ queue: DispatchQueue?, _ ports: inout [String: UInt16]
    ) throws -> (AsyncSocket, DelegateServer) {
        let server = DelegateServer(settings, isStartTLS: name == "startTLS", queue: queue, tally)
        let socket = AsyncSocket(inlineDelegate: server)
        socket.maximumConnections = 50_000
        socket.maximumConnectionsPerSource = 50_000
        try socket.accept(onInterface: "127.0.0.1", port: 0)
        ports["\(name):\(queue == nil ? "inline" : "queue")"] = socket.localPort
        return (socket, server)
    }

    // MARK: - Client

    private func connect(_ arguments: [String]) async throws {
        guard arguments.count > 3, let seed = UInt64(arguments[0]), let pause = Double(arguments[1]), let ramp = Double(arguments[2])
        else { Self.fail("usage: see Tools/soak/run") }
        let routes = arguments[3...].compactMap { Route($0) }
        guard routes.count == arguments.count - 3 else { Self.fail("a route is malformed: \(arguments[3...])") }
        let settings = (0..<2).map { number in
            var settings = TLSSettings.client
            settings.trustRoots = .file(path: "\(folder)/ca.pem")
            if number == 1 { settings.maximumVersion = .tls12 }
            return settings
        }
        let queues = (0..<4).map { DispatchQueue(label: "soak.\($0)") }
        var choices = Choices(state: seed)
        await withTaskGroup { group in
            for route in routes {
                for number in 0..<route.count {
                    let delay = Double.random(in: 0...ramp, using: &choices)
                    let client = Client(
                        route: route, settings: settings[number % 2], tally: tally, pause: .seconds(pause), seed: choices.next(),
                        queue: queues[number % queues.count])
                    client.start(after: delay, in: &group)
                }
            }
            group.addTask { try? await report() }
            for await _ in group {}
        }
    }

    // MARK: - Both

    /// Reports each second until standard input ends.
    private func report() async throws {
        let (tally, input) = (tally, DispatchQueue(label: "soak.input"))
        input.async {
            _ = readLine()
            tally.stop()
            _ = readLine()
            exit(EXIT_SUCCESS)
        }
        while true {
            tally.report(await SocketEventLoop.latencies())
            try await Task.sleep(for: .seconds(1))
        }
    }
}

/// A client that has not started.
struct Client: Sendable {
    let route: Route
    let settings: TLSClientSettings
    let tally: Tally
    let pause: Duration
    let seed: UInt64
    let queue: DispatchQueue

    func start(after delay: Double, in group: inout TaskGroup<Void>) {
        if route.kind != .dtls && route.style != .tasks {
            let client = DelegateClient(
                route, settings, tally, pause: pause, seed: seed, queue: route.style == .queue ? queue : nil, timers: queue)
            tally.retain(client)
            return queue.asyncAfter(deadline: .now() + delay) { client.connect() }
        }
        group.addTask {
            try? await tally.sleep(.seconds(delay))
            if route.kind == .dtls {
                await Datagrams.runClient(route, settings, tally, pause: pause, choices: Choices(state: seed))
            } else {
                var client = TaskClient(route, settings, tally, pause: pause, seed: seed)
                await client.run()
            }
        }
    }
}
