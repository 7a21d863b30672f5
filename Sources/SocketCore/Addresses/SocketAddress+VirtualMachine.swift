internal import CLinux
internal import Glibc

// Addresses between a virtual machine and its host (vsock(7)): a context identifier for the machine, and a
// port of 32 bits.
extension SocketAddress {
    /// A port of a machine: 0 for the hypervisor, 1 for this machine itself, 2 for the host, more for guests.
    ///
    /// The kernel decides what can be reached: without the transport that it takes, connecting and listening
    /// fail with `.connectFailed` or `.system` and an `errno` such as `EADDRNOTAVAIL`.
    ///
    /// - Parameters:
    ///   - port: The port; `anyVirtualMachinePort` lets the kernel choose one for a listener.
    ///   - contextID: The machine's CID; nil: any, for a listener.
    public init(virtualMachinePort port: UInt32, contextID: UInt32?) {
        var storage = sockaddr_storage()
        var address = sockaddr_vm()
        address.svm_family = sa_family_t(AF_VSOCK)
        address.svm_port = port
        address.svm_cid = contextID ?? .max
        withUnsafeMutableBytes(of: &storage) { room in withUnsafeBytes(of: address) { room.copyMemory(from: $0) } }
        length = socklen_t(MemoryLayout<sockaddr_vm>.size)
        self.storage = storage
    }

    /// Lets the kernel choose a port (`VMADDR_PORT_ANY`).
    public static let anyVirtualMachinePort = UInt32.max

    /// This machine itself (`VMADDR_CID_LOCAL`), if the kernel has the loopback transport.
    public static let localContextID: UInt32 = 1

    /// The machine's context identifier; nil for an address of another family.
    public var contextID: UInt32? { virtualMachine?.svm_cid }

    /// The port of a machine; nil for an address of another family.
    public var virtualMachinePort: UInt32? { virtualMachine?.svm_port }

    private var virtualMachine: sockaddr_vm? {
        guard family == .virtualMachine else { return nil }
        return withUnsafeBytes(of: storage) { $0.load(as: sockaddr_vm.self) }
    }
}
