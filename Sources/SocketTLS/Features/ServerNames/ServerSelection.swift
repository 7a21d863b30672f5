/// Whether the function of a server's names was asked.
final class ServerSelection {
    let names: TLSServerNames
    var isAsked = false
    /// So many bytes have to be there before it is worth another look.
    var minimum = 0
    var reader = ClientHelloReader()

    init(names: TLSServerNames) {
        self.names = names
    }
}
