internal import FoundationEssentials
internal import SocketCore
internal import SocketTLS

/// The sockets that a process offers to its successor, and the cookie secrets of its DTLS servers. Sent as
/// JSON in a packet that also carries the descriptors: first the door, then the listeners in the same order.
/// The ticket keys follow in a second packet.
struct HandoverOffer: Codable {
    struct Listener: Codable {
        /// The name that the program gave the listener.
        let name: String
        /// The socket file of each descriptor. `nil` for a TCP socket.
        let files: [UnixSocketFile.Place?]
        /// See `HandoverListener.cookieSecrets`.
        var cookieSecrets: Data?
    }

    /// Increment this when a process that knows only the previous format would misread the offer.
    static let currentVersion = 1

    let version: Int
    let door: UnixSocketFile.Place?
    let listeners: [Listener]

    init(door: UnixSocketFile.Place?, _ listeners: [Listener]) {
        (version, self.door, self.listeners) = (Self.currentVersion, door, listeners)
    }

    /// An offer with its descriptors.
    struct Parsed {
        let door: InheritedDescriptor
        let listeners: [InheritedDescriptor]
        /// The secrets by the name of the listener.
        let cookieSecrets: [String: Data]
    }

    /// Parses an offer and takes over its descriptors, which are closed if the offer is invalid.
    static func parse(
        _ packet: PacketSocket.Packet
    ) throws(AsyncSocketError) -> Parsed {
        let unnamed = packet.descriptors.map { InheritedDescriptor($0, name: "") }
        guard let offer = try? JSONDecoder().decode(HandoverOffer.self, from: Data(packet.bytes)) else {
            throw .handover("the offer of the old process cannot be read")
        }
        guard offer.version == currentVersion else {
            throw .handover("the old process uses version \(offer.version) of the handover, and this process \(currentVersion)")
        }
        let places = [("", offer.door)] + offer.listeners.flatMap { listener in listener.files.map { (listener.name, $0) } }
        guard places.count == unnamed.count else {
            throw .handover("the offer of the old process contains \(unnamed.count) descriptors instead of \(places.count)")
        }
        let descriptors = zip(unnamed, places).map { descriptor, place in
            InheritedDescriptor(descriptor.relinquish() ?? -1, name: place.0, file: place.1)
        }
        let secrets = offer.listeners.compactMap { listener in listener.cookieSecrets.map { (listener.name, $0) } }
        return Parsed(
            door: descriptors[0], listeners: Array(descriptors.dropFirst()),
            cookieSecrets: Dictionary(secrets, uniquingKeysWith: { first, _ in first }))
    }
}

/// The replies of a successor and of its predecessor.
enum HandoverReply {
    /// The successor can serve.
    static let ready: [UInt8] = Array("ready".utf8)
    /// The predecessor has stopped accepting.
    static let closing: [UInt8] = Array("closing".utf8)
    /// The predecessor stays in service, because the successor took too long.
    static let late: [UInt8] = Array("late".utf8)
}

extension AsyncSocketError {
    static func handover(_ message: String, fault: TLSError.Fault = .peer) -> AsyncSocketError {
        AsyncSocketError(.badConfiguration, fault: fault, operation: .restart, message: message)
    }
}
