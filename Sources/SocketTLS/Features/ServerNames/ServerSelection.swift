/// The progress of selecting a server's settings for the client's server name (SNI). `isAsked` is set once
/// the program's function is called.
final class ServerSelection {
    let names: TLSServerNames
    var isAsked = false
    /// The number of bytes required before another attempt to read the ClientHello is worthwhile.
    var minimum = 0
    var reader = ClientHelloReader()

    init(names: TLSServerNames) {
        self.names = names
    }
}
