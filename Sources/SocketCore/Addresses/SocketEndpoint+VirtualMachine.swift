internal import CLinux
internal import Glibc

// Addresses for communication between a virtual machine and its host (vsock(7)): a context identifier (CID)
// for the machine, and a 32-bit port.
extension SocketEndpoint {
    /// Creates the address of a port on a virtual machine or its host.
    ///
    /// CID 0 is the hypervisor, 1 is this machine, 2 is the host, and higher numbers are guests. Which
    /// machines are reachable depends on the kernel: without the required transport, connecting and
    /// listening fail with `.connectFailed` or `.system` and an `errno` such as `EADDRNOTAVAIL`.
    ///
    /// - Parameters:
    ///   - port: The port. For a listener, `anyVsockPort` lets the kernel choose a port.
    ///   - contextID: The CID of the machine. For a listener, `nil` means any.
    public init(vsockPort port: UInt32, contextID: UInt32?) {
        var storage = sockaddr_storage()
        var address = sockaddr_vm()
        address.svm_family = sa_family_t(AF_VSOCK)
        address.svm_port = port
        address.svm_cid = contextID ?? .max
        withUnsafeMutableBytes(of: &storage) { room in withUnsafeBytes(of: address) { room.copyMemory(from: $0) } }
        length = socklen_t(MemoryLayout<sockaddr_vm>.size)
        self.storage = storage
    }

    /// The port number that lets the kernel choose a port (`VMADDR_PORT_ANY`).
    public static let anyVsockPort = UInt32.max

    /// The CID of this machine (`VMADDR_CID_LOCAL`), which requires the kernel's loopback transport.
    public static let localContextID: UInt32 = 1

    /// The context identifier (CID) of the machine, or `nil` if this is not a vsock address.
    public var contextID: UInt32? { vsock?.svm_cid }

    /// The port on the machine, or `nil` if this is not a vsock address.
    public var vsockPort: UInt32? { vsock?.svm_port }

    private var vsock: sockaddr_vm? {
        guard family == .vsock else { return nil }
        return withUnsafeBytes(of: storage) { $0.load(as: sockaddr_vm.self) }
    }
}
