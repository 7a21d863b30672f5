internal import SocketCore
internal import SocketTLS

/// The selection of a listener's settings for one peer, by the name that it requests. Confined to the turn.
final class DatagramSettingsSelection {
    let request: TLSRequest
    private var selection: DatagramSelection
    private var isAsked = false
    /// Whether the first datagram is a ClientHello with a cookie, which the listener has verified.
    private(set) var hasCookie = false
    /// Whether there may be more datagrams that no event will announce.
    private(set) var mayHaveMore = false
    private var choice: TLSServerChoice.Settings?

    /// The maximum number of datagrams to receive in a turn.
    private static let datagramsPerTurn = 64

    /// Returns `nil` if the settings are the same for every peer.
    init?(_ request: TLSRequest) {
        guard let selection = DatagramSelection(request.settings, request.context) else { return nil }
        (self.request, self.selection) = (request, selection)
    }

    /// Records the program's choice.
    func note(_ choice: TLSServerChoice.Settings) {
        self.choice = choice
    }

    /// Receives the ClientHello, and selects the settings.
    func advance(_ channel: DatagramChannel, _ peer: InternetAddress) -> DatagramSelection.Step {
        if let choice { return selection.choose(choice) }
        guard !isAsked else { return .incomplete }
        let step = receive(channel, peer)
        if case .asks = step { isAsked = true }
        return step
    }

    private func receive(_ channel: DatagramChannel, _ peer: InternetAddress) -> DatagramSelection.Step {
        mayHaveMore = true
        var step = DatagramSelection.Step.incomplete
        if let hello = channel.takeHello() {
            hasCookie = true
            step = hello.withUnsafeBytes { selection.receive($0) }
        }
        for _ in 0..<Self.datagramsPerTurn {
            guard case .incomplete = step, let received = channel.next() else {
                mayHaveMore = false
                break
            }
            if received.sender == peer { step = selection.receive(received.bytes) }
        }
        return step
    }
}

extension TLSSettingValues {
    /// Throws `invalidSettings` for server names on a socket whose ClientHello is not known in advance.
    func requireListenerForNames(_ isOfListener: Bool) throws(TLSError) {
        guard serverNames == nil || isOfListener else {
            throw TLSError(
                .invalidSettings, "serverNames requires a DatagramListener: set serverNames to nil for this socket",
                operation: "startDTLS")
        }
    }
}
