import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct MultipathTests {
    /// Whether this kernel supports Multipath TCP.
    private static let kernelHasMultipathTCP = (try? RawSocket(AF_INET, protocol: 262)) != nil

    /// Multipath TCP is used if both sides enable it and the kernel supports it. The connection works in any
    /// case.
    @Test(arguments: [true, false], [true, false])
    func multipathTCPIsUsedWhenBothSidesAskForIt(_ atClient: Bool, _ atListener: Bool) async throws {
        let recorders = [Recorder(), Recorder()]
        let listener = AsyncSocket(inlineDelegate: recorders[0])
        listener.usesMultipathTCP = atListener
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = AsyncSocket(inlineDelegate: recorders[1])
        client.usesMultipathTCP = atClient
        #expect(!client.isMultipathTCP)
        try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        try await recorders[1].connected()
        let child = try await recorders[0].accepted()
        child.write(Data("over any path"), withTimeout: .patient, tag: 0)
        client.readData(toLength: 13, withTimeout: .patient, tag: 0)
        #expect(try await recorders[1].readText() == "over any path")
        let isUsed = atClient && atListener && Self.kernelHasMultipathTCP
        #expect(client.isMultipathTCP == isUsed)
        #expect(child.isMultipathTCP == isUsed)
        #expect(child.usesMultipathTCP == atListener)
        client.disconnect()
        #expect(try await recorders[1].disconnected() == nil)
        #expect(!client.isMultipathTCP)
        withExtendedLifetime(recorders) {}
    }
}
