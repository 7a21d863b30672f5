internal import AsyncSockets
internal import CSimulation
internal import Foundation

/// A client with a delegate that decides late, twice, or never, from any thread.
final class DecidingDelegate: RunSide, AsyncSocketDelegate, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let name = "client"
    private let course: LimitRun
    private let plan: LimitPlan
    private var socket: AsyncSocket?
    private weak var observed: AsyncSocket?
    private var requestTime: UInt64?
    private var isSecure = false
    private var hasRead = false
    private var hasEnded = false

    init(_ descriptor: Int32, _ course: LimitRun) {
        (self.course, plan) = (course, course.plan)
        do {
            socket = try AsyncSocket(adopting: descriptor, inlineDelegate: self)
            observed = socket
        } catch {
            complain("\(error)")
        }
    }

    var isReleased: Bool { observed == nil }

    private func complain(_ text: String) { course.scheduler.fail("\(name): \(text)") }

    func run() {
        guard let socket else { return }
        var settings = plan.clientSettings
        settings.trustEvaluation = .delegate
        do {
            try socket.beginTLS(settings: settings)
        } catch {
            if !plan.isDisturbed { complain("\(error)") }
        }
        socket.write(Data(course.pattern(of: 0).bytes), tag: 1)
        socket.readData(toLength: course.pattern(of: 1).bytes.count, tag: 2)
    }

    private func enter(_ callback: StaticString) {
        course.trace.add(callback, 0)
        if hasEnded { complain("\(callback) after didDisconnect") }
    }

    func socket(_ socket: AsyncSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void) {
        enter("didReceiveTrust")
        if requestTime != nil { complain("a second request for a decision") }
        requestTime = course.kernel.now
        if plan.decision == .never { return }
        let isAccepted = plan.decision == .accept
        let decide = { [course, plan] in
            course.hasDecided = true
            completionHandler(isAccepted)
            if plan.decidesTwice { completionHandler(!isAccepted) }
        }
        // Without a delay, within the callback.
        if plan.decisionTime == 0 { return decide() }
        course.kernel.after(UInt64(plan.decisionTime) * 1_000_000, decide)
    }

    func socketDidSecure(_ socket: AsyncSocket) {
        enter("didSecure")
        if isSecure { complain("didSecure twice") }
        isSecure = true
        if !course.hasDecided || !plan.isTrusted { complain("didSecure, although the server is not trusted") }
    }

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
        enter("didWrite")
        if !isSecure { complain("a write completes before didSecure") }
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        enter("didRead")
        if !isSecure { complain("a read completes before didSecure") }
        if let complaint = course.pattern(of: 1).complaint(about: data, at: 0) { complain(complaint) }
        hasRead = data.count == course.pattern(of: 1).bytes.count
        socket.disconnectAfterReadingAndWriting()
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        enter("didDisconnect")
        hasEnded = true
        if plan.isDisturbed || plan.isTrusted { return }
        if plan.isDecided {
            if error?.code != .tls { complain("\(error as Any) instead of a rejection") }
        } else {
            if error?.code != .trustTimeout { complain("\(error as Any) instead of a timeout of the decision") }
            course.checkTime(since: requestTime ?? 0, UInt64(plan.trustTimeout) * 1_000_000, "the time for a decision")
        }
    }

    func disconnect() { socket?.disconnect() }

    func complaintAtEnd() -> String? {
        if !hasEnded { return "the connection does not end" }
        return plan.succeeds && !hasRead ? "the exchange is incomplete" : nil
    }

    func abandon() { socket = nil }
}
