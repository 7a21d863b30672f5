import COpenSSL
import SocketTLS

/// An OpenSSL server that receives a ClientHello, and reports the extensions that OpenSSL reads from it.
final class HelloObserver: @unchecked Sendable {
    // Unchecked: a target runs on one thread, and the tests of a target do not run in parallel.
    static let shared = HelloObserver()

    private let context: OpaquePointer

    fileprivate final class View {
        var serverName: [UInt8]?
        var applicationProtocols: [UInt8]?
        var isCalled = false
    }

    private init() {
        guard let context = SSL_CTX_new(TLS_server_method()) else { fatalError("SSL_CTX_new") }
        self.context = context
    }

    private static let callback: SSL_client_hello_cb_fn = { ssl, _, argument in
        guard let ssl, let argument else { return SSL_CLIENT_HELLO_ERROR }
        let view = Unmanaged<View>.fromOpaque(argument).takeUnretainedValue()
        view.isCalled = true
        view.serverName = HelloObserver.contents(of: ssl, TLSEXT_TYPE_server_name)
        view.applicationProtocols = HelloObserver.contents(of: ssl, TLSEXT_TYPE_application_layer_protocol_negotiation)
        // The extensions are known, so the handshake need not continue.
        return SSL_CLIENT_HELLO_ERROR
    }

    private static func contents(of ssl: OpaquePointer, _ type: Int32) -> [UInt8]? {
        var (start, count): (UnsafePointer<UInt8>?, Int) = (nil, 0)
        guard SSL_client_hello_get0_ext(ssl, UInt32(type), &start, &count) == 1 else { return nil }
        return Array(UnsafeBufferPointer(start: start, count: count))
    }

    /// Compares the library's reading with OpenSSL's. OpenSSL may reject a message that the library reads,
    /// but if both read it, they read the same name and protocols.
    func check(_ hello: TLSClientHello, _ records: [UInt8]) throws {
        let view = View()
        SSL_CTX_set_client_hello_cb(context, HelloObserver.callback, Unmanaged.passUnretained(view).toOpaque())
        guard let ssl = SSL_new(context), let input = BIO_new(BIO_s_mem()), let output = BIO_new(BIO_s_mem()) else { return }
        defer { SSL_free(ssl) }
        SSL_set_bio(ssl, input, output)
        BIO_write(input, records, Int32(records.count))
        SSL_set_accept_state(ssl)
        SSL_do_handshake(ssl)
        ERR_clear_error()
        guard view.isCalled else { return }
        if let contents = view.serverName, let name = Self.serverName(in: contents) {
            let own = hello.serverName ?? "none"
            try require(hello.serverName == name, "OpenSSL reads the server name \(name) instead of \(own)")
        } else {
            try require(hello.serverName == nil, "OpenSSL reads no server name, but \(hello.serverName ?? "")")
        }
        let names = view.applicationProtocols.map(Self.names) ?? []
        try require(names == hello.applicationProtocols, "OpenSSL reads other protocols: \(names)")
    }

    /// The name in the extension, if OpenSSL accepts it: a list with one entry of type 0 (RFC 6066, 3).
    private static func serverName(in contents: [UInt8]) -> String? {
        guard contents.count >= 5, Int(contents[0]) << 8 + Int(contents[1]) == contents.count - 2, contents[2] == 0,
            Int(contents[3]) << 8 + Int(contents[4]) == contents.count - 5, contents.count - 5 <= 255,
            !contents[5...].contains(0)
        else { return nil }
        return String(decoding: contents[5...], as: UTF8.self)
    }

    /// RFC 7301, section 3.1.
    private static func names(in contents: [UInt8]) -> [String] {
        var (rest, names) = (contents.dropFirst(2), [String]())
        while let count = rest.popFirst(), count > 0, rest.count >= Int(count) {
            names.append(String(decoding: rest.prefix(Int(count)), as: UTF8.self))
            rest = rest.dropFirst(Int(count))
        }
        return names
    }
}
