import Glibc
import Testing

/// Sends bytes with a descriptor (`SCM_RIGHTS`), here standard input. A recv stops after them.
func sendWithDescriptor(_ bytes: [UInt8], to peer: CInt) {
    struct Passing {
        var header = cmsghdr()
        var descriptor: CInt = 0
        var padding: CInt = 0
    }
    var passing = Passing()
    passing.header.cmsg_len = MemoryLayout<cmsghdr>.size + MemoryLayout<CInt>.size
    passing.header.cmsg_level = SOL_SOCKET
    passing.header.cmsg_type = CInt(SCM_RIGHTS)
    var bytes = bytes
    bytes.withUnsafeMutableBytes { bytes in
        withUnsafeMutableBytes(of: &passing) { passing in
            var part = iovec(iov_base: bytes.baseAddress, iov_len: bytes.count)
            withUnsafeMutablePointer(to: &part) { part in
                var message = msghdr()
                message.msg_iov = part
                message.msg_iovlen = 1
                message.msg_control = passing.baseAddress
                message.msg_controllen = passing.count
                #expect(sendmsg(peer, &message, 0) == bytes.count)
            }
        }
    }
}
