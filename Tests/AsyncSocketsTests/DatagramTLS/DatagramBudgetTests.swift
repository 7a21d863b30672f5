import AsyncSocketsTesting
import SocketBuffers
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import SocketCore

/// The work that a turn performs for an unauthenticated peer.
@Suite(.timeLimit(.patient)) struct DatagramBudgetTests {
    /// A source of datagrams full of forged records.
    private final class Flood: DatagramChannel {
        private let peer: InternetAddress
        private(set) var count = 0
        private let bytes: UnsafeMutableRawBufferPointer

        init(from peer: InternetAddress) throws {
            self.peer = peer
            let record: [UInt8] = [23, 0xFE, 0xFD, 0, 1, 0, 0, 0, 0, 0, 9, 0, 24] + [UInt8](repeating: 7, count: 24)
            let all = (0..<1700).flatMap { _ in record }
            bytes = .allocate(byteCount: all.count, alignment: 1)
            bytes.copyBytes(from: all)
            super.init(try DatagramDescriptor(opening: .ipv4), maximumSize: 1, coalesces: false)
        }

        deinit { bytes.deallocate() }

        override func next() -> ReceivedDatagram? {
            count += 1
            let arrival = DatagramArrival(ArrivalFacts(), fullSize: bytes.count, isTruncated: false)
            return ReceivedDatagram(bytes: UnsafeRawBufferPointer(bytes), sender: peer, arrival: arrival)
        }

        override var mayHaveInput: Bool { true }
    }

    private func establishedEngine() throws -> DTLSEngine {
        func engine(_ settings: TLSSettings<some TLSRole.Side>) throws -> DTLSEngine {
            let values = settings.values
            return try DTLSEngine(context: TLSContext.context(for: values, over: .datagrams), settings: values, size: 1400)
        }
        func carry(_ from: DTLSEngine, _ to: DTLSEngine) {
            from.sendOutput { datagrams in
                for datagram in datagrams { to.receive(datagram) }
                return datagrams.count
            }
        }
        let (client, server) = (try engine(TestCertificates.client()), try engine(TestCertificates.server()))
        for _ in 0..<8 {
            _ = client.handshake()
            carry(client, server)
            _ = server.handshake()
            carry(server, client)
        }
        try #require(client.isEstablished && server.isEstablished)
        return server
    }

    @Test(arguments: [false, true]) func aTurnTakesALimitedNumberOfRecords(_ isForTask: Bool) throws {
        let peer = try InternetAddress.discard
        let flood = try Flood(from: peer)
        let counts = DatagramCounts()
        let input = DatagramInput(EventOutbox<DatagramEvent>(), counts) { _ in }
        input.secure(DatagramLayer(try establishedEngine(), over: flood, with: peer, isSizeGiven: true, counts))
        if isForTask {
            #expect(input.takeOrWait([flood], peer, OperationLimit(nil)) == nil)
        } else {
            #expect(input.pump([flood], peer))
        }
        #expect(flood.count == 1)
    }
}
