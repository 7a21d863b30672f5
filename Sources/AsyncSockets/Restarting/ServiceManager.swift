internal import FoundationEssentials
internal import Glibc
internal import SocketCore

/// The service manager that started this process, such as systemd, as the receiver of notifications
/// (sd_notify(3)).
///
/// ```swift
/// let listener = try SocketListener(port: 25)
/// try ServiceManager.current?.notify(.ready)
/// ```
///
/// The manager expects notifications if the unit has `Type=notify` or `Type=notify-reload`
/// (systemd.service(5)). `HotRestart.run` sends `.ready` and `.mainProcess` itself.
public struct ServiceManager: Sendable {
    /// A notification of sd_notify(3).
    public struct Notification: Sendable, Hashable, CustomStringConvertible {
        /// The assignments, one per line.
        public let description: String

        private init(_ description: String) {
            self.description = description
        }

        /// The service has started, or has finished reloading: `READY=1`.
        public static let ready = Notification("READY=1")
        /// The service is reloading its configuration: `RELOADING=1`, with the time. Send `.ready`
        /// afterwards.
        public static var reloading: Notification {
            var time = timespec()
            clock_gettime(CLOCK_MONOTONIC, &time)
            return Notification("RELOADING=1\nMONOTONIC_USEC=\(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000)")
        }
        /// The service is shutting down: `STOPPING=1`.
        public static let stopping = Notification("STOPPING=1")
        /// The service is alive: `WATCHDOG=1`. See `keepAlive()`.
        public static let watchdog = Notification("WATCHDOG=1")
        /// This process is the main process of the service: `MAINPID=…`. A process that is not yet the main
        /// process needs `NotifyAccess=all` in the unit.
        public static var mainProcess: Notification { Notification("MAINPID=\(getpid())") }
        /// A line of text for `systemctl status`: `STATUS=…`. Control characters are replaced by spaces.
        public static func status(_ text: String) -> Notification {
            Notification("STATUS=" + String(String.UnicodeScalarView(text.unicodeScalars.map { $0.value < 0x20 ? " " : $0 })))
        }
    }

    /// The manager of this process, according to the environment. `nil` if none expects notifications.
    public static let current = ServiceManager(
        environment: Dictionary(
            uniqueKeysWithValues: [notifyVariable, intervalVariable, processVariable].compactMap { name in
                getenv(name).map { (name, String(cString: $0)) }
            }))

    /// How often the manager expects `.watchdog` at the latest (`WatchdogSec=`). `nil` if it does not.
    public let watchdogInterval: Duration?
    private let address: SocketEndpoint

    private static let notifyVariable = "NOTIFY_SOCKET"
    private static let intervalVariable = "WATCHDOG_USEC"
    private static let processVariable = "WATCHDOG_PID"

    init?(environment: [String: String]) {
        guard let text = environment[Self.notifyVariable], let address = Self.address(text) else { return nil }
        self.address = address
        let isMeant = environment[Self.processVariable].map { $0 == "\(getpid())" } ?? true
        let interval = environment[Self.intervalVariable].flatMap { Int64($0) }
        watchdogInterval = isMeant ? interval.flatMap { $0 > 0 ? .microseconds($0) : nil } : nil
    }

    /// An absolute path, or an abstract name that starts with `@`.
    private static func address(_ text: String) -> SocketEndpoint? {
        if text.hasPrefix("@") { return SocketEndpoint(abstractName: String(text.dropFirst())) }
        return text.hasPrefix("/") ? SocketEndpoint(unixPath: text) : nil
    }

    /// Sends notifications in one message.
    ///
    /// - Throws: `.system` with the kernel's error, for example if the manager's socket no longer exists.
    public func notify(_ notifications: Notification...) throws(AsyncSocketError) {
        try send(notifications.map(\.description), [])
    }

    /// Passes copies of a listener's sockets to the manager (`FDSTORE=1`), which keeps them while the service
    /// restarts. The next process claims them with `InheritedDescriptor.claim(named:)`.
    ///
    /// Requires `FileDescriptorStoreMax=` in the unit. Remove the sockets with `removeStored(named:)` before
    /// the listener closes for good.
    ///
    /// - Parameters:
    ///   - listener: The listener.
    ///   - name: 1 to 255 characters of ASCII, without control characters and colons.
    /// - Throws: `.badParameter` for an invalid name; otherwise the errors of `notify(_:)`.
    public func store(_ listener: SocketListener, named name: String) throws(AsyncSocketError) {
        try Self.check(name)
        var numbers: [CInt] = []
        defer { for number in numbers { close(number) } }
        for acceptor in listener.listener.acceptors {
            do throws(SystemError) {
                if let number = try acceptor.duplicate() { numbers.append(number) }
            } catch {
                throw AsyncSocketError(error, operation: .restart)
            }
        }
        try send(["FDSTORE=1", "FDNAME=\(name)"], numbers)
    }

    /// Removes the sockets that were stored under a name (`FDSTOREREMOVE=1`).
    ///
    /// - Throws: The errors of `store(_:named:)`.
    public func removeStored(named name: String) throws(AsyncSocketError) {
        try Self.check(name)
        try send(["FDSTOREREMOVE=1", "FDNAME=\(name)"], [])
    }

    /// Sends `.watchdog` at half of `watchdogInterval`, as long as each event loop of the process responds.
    ///
    /// If code blocks an event loop, or the process hangs, the manager restarts the service. Returns
    /// immediately if the manager expects no such notifications, and otherwise when the task is cancelled.
    ///
    /// - Throws: `CancellationError` if the task is cancelled, and the errors of `notify(_:)`.
    @concurrent
    public func keepAlive() async throws {
        guard let watchdogInterval else { return }
        while true {
            _ = await SocketEventLoop.latencies()
            try notify(.watchdog)
            try await Task.sleep(for: watchdogInterval / 2)
        }
    }

    private static func check(_ name: String) throws(AsyncSocketError) {
        let isValid = (1...255).contains(name.utf8.count) && name.utf8.allSatisfy { (0x20...0x7e).contains($0) && $0 != 0x3a }
        guard isValid else {
            throw .badParameter(
                .restart, "the name of stored sockets must have 1 to 255 characters of ASCII without colons, but is \"\(name)\"")
        }
    }

    private func send(_ lines: [String], _ descriptors: [CInt]) throws(AsyncSocketError) {
        do throws(SystemError) {
            try PacketSocket.sendDatagram(Array(lines.joined(separator: "\n").utf8), descriptors: descriptors, to: address)
        } catch {
            throw AsyncSocketError(error, operation: .restart)
        }
    }
}
