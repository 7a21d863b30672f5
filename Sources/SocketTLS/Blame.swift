/// Who has to change something before the same attempt can succeed.
public enum Blame: Sendable, Hashable, CustomStringConvertible {
    /// The program that uses this library: a setting, a file, or a trust callback that did not answer.
    case caller
    /// The program at the other end, or someone on the wire between.
    case peer
    /// The certificate that the peer showed.
    case certificate
    /// This machine, OpenSSL, or this library.
    case system

    /// The case's name in plain English.
    public var description: String {
        switch self {
        case .caller: "caller"
        case .peer: "peer"
        case .certificate: "certificate"
        case .system: "system"
        }
    }
}
