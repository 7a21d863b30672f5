internal import COpenSSL

/// A list of ALPN names in wire form, at an address that stays the same.
final class ApplicationProtocols: @unchecked Sendable {
    // Unchecked: the memory is written once, before anybody else sees it.
    let wireForm: UnsafeBufferPointer<UInt8>

    init(_ names: [String]) {
        let bytes = names.flatMap { [UInt8(truncatingIfNeeded: $0.utf8.count)] + Array($0.utf8) }
        let memory = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: bytes.count)
        _ = memory.initialize(from: bytes)
        wireForm = UnsafeBufferPointer(memory)
    }

    deinit { wireForm.deallocate() }

    /// A client offers the whole list. (OpenSSL's answer is 0 for success, unlike everywhere else.)
    func offer(on context: OpaquePointer) -> Int32 {
        SSL_CTX_set_alpn_protos(context, wireForm.baseAddress, UInt32(wireForm.count)) == 0 ? 1 : 0
    }

    /// A server chooses the first of its own that the client offers, and ends the handshake when there is
    /// none (RFC 7301, 3.2).
    func choose(on context: OpaquePointer) {
        let list = Unmanaged.passUnretained(self).toOpaque()
        SSL_CTX_set_alpn_select_cb(
            context,
            { _, chosen, chosenLength, offered, offeredLength, list in
                guard let list, let chosen, let chosenLength else { return SSL_TLSEXT_ERR_ALERT_FATAL }
                let own = Unmanaged<ApplicationProtocols>.fromOpaque(list).takeUnretainedValue().wireForm
                var selected: UnsafeMutablePointer<UInt8>?
                let answer = SSL_select_next_proto(
                    &selected, chosenLength, own.baseAddress, UInt32(own.count), offered, offeredLength)
                guard answer == OPENSSL_NPN_NEGOTIATED else { return SSL_TLSEXT_ERR_ALERT_FATAL }
                chosen.pointee = UnsafePointer(selected)
                return SSL_TLSEXT_ERR_OK
            }, list)
    }
}
