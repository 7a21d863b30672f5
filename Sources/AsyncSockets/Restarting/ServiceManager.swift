internal import FoundationEssentials
internal import Glibc
internal import SocketCore

/// The service manager that started this process, such as systemd. Use it to send notifications
/// (sd_notify(3)) and to store sockets across a restart.
///
/// ```swift
/// let listener = try SocketListener(port: 25)
/// try ServiceManager.current?.notify(.ready)
/// ```
///
/// The manager expects notifications if the unit has `Type=notify` or `Type=notify-reload`
/// (systemd.service(5)). `HotRestart` sends `.ready`, `.mainProcess` and `.stopping`.
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
            Notification("RELOADING=1\nMONOTONIC_USEC=\(Deadline.now.nanoseconds / 1_000)")
        }
        /// The service is shutting down: `STOPPING=1`.
        public static let stopping = Notification("STOPPING=1")
        /// The service is alive: `WATCHDOG=1`. See `keepAlive()`.
        public static let watchdog = Notification("WATCHDOG=1")
        /// This process is the main process of the service: `MAINPID=…`. A process that is not yet the main
        /// process needs `NotifyAccess=all` in the unit.
        public static var mainProcess: Notification { .mainProcess(getpid()) }
        static func mainProcess(_ process: Int32) -> Notification { Notification("MAINPID=\(process)") }
        /// A line of text for `systemctl status`: `STATUS=…`. Control characters are replaced by spaces.
        public static func status(_ text: String) -> Notification {
            Notification("STATUS=" + String(String.UnicodeScalarView(text.unicodeScalars.map { $0.value < 0x20 ? " " : $0 })))
        }
    }

    /// The service manager of this process, or `nil` if the environment variable `NOTIFY_SOCKET` is not set
    /// or not valid.
    public static let current = ServiceManager(
        environment: Dictionary(
            uniqueKeysWithValues: [notifyVariable, intervalVariable, processVariable].compactMap { name in
                getenv(name).map { (name, String(cString: $0)) }
            }))

    /// The longest permitted time between two `.watchdog` notifications (`WatchdogSec=`), or `nil` if the
    /// manager expects no such notifications.
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
    /// - Throws: `.system` with the kernel's error, for example EAGAIN if the manager's queue is full.
    public func notify(_ notifications: Notification...) throws(AsyncSocketError) {
        try send(notifications.map(\.description), [])
    }

    /// Passes copies of a listener's sockets to the manager (`FDSTORE=1`), which keeps them while the service
    /// restarts. The next process claims them with `InheritedDescriptor.claim(named:)`.
    ///
    /// The file of a Unix-domain socket is then no longer removed when the listener closes. Requires
    /// `FileDescriptorStoreMax=` in the unit. Remove the sockets with `removeStored(named:)` before
    /// the listener closes for good.
    ///
    /// - Parameters:
    ///   - listener: The listener.
    ///   - name: From 1 to 255 printable ASCII characters, without colons.
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
        // The next process needs it.
        for acceptor in listener.listener.acceptors { _ = acceptor.lendFile() }
    }

    /// Removes the sockets that were stored under a name (`FDSTOREREMOVE=1`).
    ///
    /// - Throws: The errors of `store(_:named:)`.
    public func removeStored(named name: String) throws(AsyncSocketError) {
        try Self.check(name)
        try send(["FDSTOREREMOVE=1", "FDNAME=\(name)"], [])
    }

    /// Sends `.watchdog` every half `watchdogInterval`, as long as each event loop of the process responds.
    ///
    /// If the process hangs or code blocks an event loop, the notifications stop and the manager restarts the
    /// service. If the manager expects no notifications, this returns immediately. Otherwise it runs until
    /// the task is cancelled.
    ///
    /// - Throws: `CancellationError` if the task is cancelled.
    @concurrent
    public func keepAlive() async throws {
        guard let watchdogInterval else { return }
        while true {
            _ = await SocketEventLoop.latencies()
            // If the manager's queue is full, the next notification counts.
            try? notify(.watchdog)
            try Task.checkCancellation()
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
