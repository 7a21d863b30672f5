import Foundation

@testable import SocketCore
@testable import SocketTLS

extension FuzzTarget {
    /// Texts with hosts, addresses and prefixes, and addresses as bytes.
    static let hosts = FuzzTarget(name: "hosts", maximumLength: 512) { input in
        let bytes = Array(input.rest)
        let text = String(decoding: bytes, as: UTF8.self)
        try checkHost(text)
        if let prefix = AddressPrefix(text) { try require(AddressPrefix("\(prefix)") == prefix, "the prefix changes: \(prefix)") }
        if let name = try? ServerName(text), case .hostName(let host) = name {
            try require(!host.isEmpty && host.utf8.count <= 253 && !host.utf8.contains(0), "an invalid server name: \(host)")
        }
        if let address = SocketEndpoint(data: Data(bytes)) {
            _ = (address.description, address.host, address.port, address.family)
            _ = try? ProxyTarget(address)
        }
        bytes.withUnsafeBytes { bytes in
            if let address = InternetAddress(bytes) { _ = address.hasHost(of: address) }
        }
    }

    private static func checkHost(_ text: String) throws {
        let literal = SocketEndpoint(literal: text, port: 80)
        guard let host = try? HostText(text, port: 80) else { return }
        switch host {
        case .address(let address):
            var bytes = [UInt8](repeating: 0, count: 16)
            let plain = text.prefix { $0 != "%" }.filter { $0 != "[" && $0 != "]" }
            let isAddress = inet_pton(AF_INET, plain, &bytes) == 1 || inet_pton(AF_INET6, plain, &bytes) == 1
            try require(isAddress, "inet_pton(3) rejects \"\(text)\", parsed as \(address)")
            guard let written = address.host else { return }
            guard case .address(let again) = try? HostText(written, port: 80), again == address else {
                throw FuzzFailure(description: "\"\(text)\" is \(address), which is another host as text")
            }
        case .name(let name):
            try require(literal == nil, "\"\(name)\" is a name and an address")
            // A name must not be an address for inet_aton(3), because a filter would compare it as text. That
            // function ignores everything after white space, but the resolver does not.
            var address = in_addr()
            let isPlain = !name.utf8.contains { $0 <= 0x20 }
            try require(!isPlain || inet_aton(name, &address) == 0, "inet_aton(3) parses the name \"\(name)\" as an address")
        }
        if let target = try? ProxyTarget(host: text, port: 80), case .name(let name, _) = target {
            try require(name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }, "the name \"\(name)\" is sent to a proxy")
        }
    }

    /// Control messages of received datagrams, as the kernel writes them.
    static let controlMessages = FuzzTarget(name: "control-messages", maximumLength: 1024) { input in
        let bytes = Array(input.rest)
        try bytes.withUnsafeBytes { bytes in
            let facts = ArrivalFacts(bytes, port: 53)
            _ = (facts.localAddress, facts.replySource, facts.droppedCount, facts.timeSince1970, facts.segmentSize)
            var reader = ControlMessageReader(bytes)
            var count = 0
            while let message = reader.next() {
                count += 1
                try require(message.data.count <= bytes.count, "a message is longer than the buffer")
            }
            try require(count <= bytes.count / 16, "\(count) messages in \(bytes.count) bytes")
            _ = DatagramError(bytes, to: nil)
        }
    }
}
