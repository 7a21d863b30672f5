internal import FoundationEssentials
internal import SocketCore
internal import SocketTLS

/// The listeners that a process offers to its successor. Sent as JSON in a packet that also carries the
/// descriptors, in the same order. The ticket keys follow in a second packet.
struct HandoverOffer: Codable {
    struct Listener: Codable {
        /// The name that the program gave the listener.
        let name: String
        /// For each descriptor, the path of the socket file that belongs to it.
        let filePaths: [String?]
    }

    /// Changes whenever an older process would misunderstand the offer.
    static let currentVersion = 1

    let version: Int
    let listeners: [Listener]

    init(_ listeners: [Listener]) {
        (version, self.listeners) = (Self.currentVersion, listeners)
    }

    /// Parses an offer and takes over its descriptors, which are closed if the offer is invalid.
    static func descriptors(in packet: PacketSocket.Packet) throws(AsyncSocketError) -> [InheritedDescriptor] {
        let numbers = packet.descriptors
        var descriptors = numbers.map { InheritedDescriptor($0, name: "") }
        guard let offer = try? JSONDecoder().decode(HandoverOffer.self, from: Data(packet.bytes)) else {
            throw .handover("the offer of the running process cannot be read")
        }
        guard offer.version == currentVersion else {
            throw .handover(
                "the running process uses version \(offer.version) of the handover, and this process \(currentVersion)")
        }
        let places = offer.listeners.flatMap { listener in listener.filePaths.map { (listener.name, $0) } }
        guard places.count == descriptors.count else {
            throw .handover(
                "the offer of the running process contains \(descriptors.count) descriptors instead of \(places.count)")
        }
        descriptors = zip(descriptors, places).map { descriptor, place in
            InheritedDescriptor(descriptor.relinquish() ?? -1, name: place.0, filePath: place.1)
        }
        return descriptors
    }
}

/// The replies of a successor and of its predecessor.
enum HandoverReply {
    /// The successor can serve.
    static let ready: [UInt8] = Array("ready".utf8)
    /// The predecessor has stopped accepting and freed its path.
    static let closing: [UInt8] = Array("closing".utf8)
    /// The predecessor stays in service, because the successor took too long.
    static let late: [UInt8] = Array("late".utf8)
}

extension AsyncSocketError {
    static func handover(_ message: String, fault: TLSError.Fault = .peer) -> AsyncSocketError {
        AsyncSocketError(.badConfiguration, fault: fault, operation: .restart, message: message)
    }
}
