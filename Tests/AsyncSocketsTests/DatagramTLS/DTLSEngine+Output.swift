import AsyncSocketsTesting
import SocketCore
import SocketTLS

extension DTLSEngine {
    /// Removes and returns the datagrams to send.
    func takeOutput() -> [[UInt8]] {
        var output: [[UInt8]] = []
        sendOutput { datagrams in
            output = datagrams.map { Array($0) }
            return datagrams.count
        }
        return output
    }
}

extension InternetAddress {
    /// The address of a peer with which the test does not communicate.
    static var discard: InternetAddress {
        get throws { InternetAddress(try SocketEndpoint.loopback(port: 9)) }
    }
}
