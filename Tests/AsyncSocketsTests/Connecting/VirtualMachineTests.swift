import AsyncSockets
import AsyncSocketsTesting
import CLinux
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Sockets between a virtual machine and its host (AF_VSOCK). Here this machine connects to itself, which not
/// every kernel supports.
@Suite(.timeLimit(.patient)) struct VirtualMachineTests {
    /// The `errno` with which the kernel refuses `address`, or nil.
    private static func kernelRefusal(of address: SocketEndpoint) -> CInt? {
        do throws(LoopbackError) {
            _ = try RawSocket.bound(to: address)
            return nil
        } catch {
            return error.errorNumber
        }
    }

    @Test func aMachineTalksToItselfWhereTheKernelLetsIt() async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        let local = SocketEndpoint(
            vsockPort: SocketEndpoint.anyVsockPort, contextID: SocketEndpoint.localContextID)
        if let refusal = Self.kernelRefusal(of: local) {
            let error = #expect(throws: AsyncSocketError.self) { try listener.accept(onAddress: local) }
            #expect(error?.code == .system)
            #expect(error?.errno == refusal)
            return
        }
        try listener.accept(onAddress: local)
        let atClient = Recorder()
        let client = AsyncSocket(inlineDelegate: atClient)
        try client.connect(toAddress: #require(listener.localAddress), withTimeout: .patient)
        try await atClient.connected()
        let server = try await atListener.accepted()
        client.write(Data("hello\r\n"), withTimeout: .patient, tag: 0)
        server.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try await atListener.readText() == "hello\r\n")
        #expect(!client.isIPv4 && !client.isIPv6)
    }

    @Test func anAddressOfAMachineSaysItsPartsAndIsTheKernels() throws {
        let address = SocketEndpoint(vsockPort: 1234, contextID: 3)
        #expect(address.family == .vsock)
        #expect((address.vsockPort, address.contextID) == (1234, 3))
        #expect(address.host == nil && address.port == nil && address.unixPath == nil)
        #expect("\(address)" == "vsock:3:1234")
        var kernels = sockaddr_vm()
        kernels.svm_family = sa_family_t(AF_VSOCK)
        kernels.svm_port = 1234
        kernels.svm_cid = 3
        #expect(address.data == withUnsafeBytes(of: &kernels) { Data($0) })
        #expect(SocketEndpoint(data: address.data) == address)
        #expect(SocketEndpoint(data: address.data.dropLast()) == nil)
        #expect(SocketEndpoint(vsockPort: 1, contextID: nil).contextID == .max)
    }

    @Test func anInterfaceForAMachineIsTheCallersError() throws {
        let socket = AsyncSocket()
        let error = #expect(throws: AsyncSocketError.self) {
            try socket.connect(toAddress: SocketEndpoint(vsockPort: 1, contextID: 1), viaInterface: "lo")
        }
        #expect(error?.code == .badParameter)
    }
}
