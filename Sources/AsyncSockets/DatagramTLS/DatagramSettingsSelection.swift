internal import SocketCore
internal import SocketTLS

/// The selection of a listener's settings for one peer, by its server name. Confined to the turn.
final class DatagramSettingsSelection {
    let request: TLSRequest
    private var selection: DatagramSelection?
    private var isAsked = false
    private var choice: TLSServerChoice.Settings?

    /// The maximum number of datagrams to receive in a turn.
    private static let datagramsPerTurn = 64

    init(_ request: TLSRequest) {
        self.request = request
        selection = DatagramSelection(request.settings, request.context)
    }

    /// Records the program's choice.
    func note(_ choice: TLSServerChoice.Settings) {
        self.choice = choice
    }

    /// Receives the ClientHello, and selects the settings.
    func advance(_ channel: DatagramChannel, _ peer: InternetAddress) -> DatagramSelection.Step {
        if let choice, let step = selection?.choose(choice) { return step }
        guard !isAsked else { return .incomplete }
        var step = channel.takeHello().flatMap { hello in hello.withUnsafeBytes { selection?.receive($0) } } ?? .incomplete
        for _ in 0..<Self.datagramsPerTurn {
            guard case .incomplete = step, let received = channel.next() else { break }
            if received.sender == peer, let next = selection?.receive(received.bytes) { step = next }
        }
        if case .asks = step { isAsked = true }
        return step
    }
}
