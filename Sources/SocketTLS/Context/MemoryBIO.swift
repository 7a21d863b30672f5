internal import COpenSSL

/// A growing memory BIO, for the OpenSSL functions that print.
package enum MemoryBIO {
    /// What `print` wrote; nil when it failed or wrote nothing.
    package static func text(_ print: (OpaquePointer) -> Int32) -> String? {
        guard let bio = BIO_new(BIO_s_mem()) else { return nil }
        defer { BIO_free(bio) }
        guard print(bio) >= 0 else { return nil }
        var start: UnsafeMutablePointer<CChar>?
        let length = COpenSSL_BIO_memoryData(bio, &start)
        guard let start, length > 0 else { return nil }
        return String(decoding: UnsafeRawBufferPointer(start: start, count: length), as: UTF8.self)
    }
}
