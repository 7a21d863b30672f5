internal import AsyncSockets
internal import Foundation

extension AsyncSocketError {
    /// The error in the form that a UDP socket's delegate receives.
    var asDatagramError: any Error {
        switch code {
        case .badConfiguration: known(.badConfigError, message)
        case .badParameter: errno.map { posix($0) } ?? known(.badParamError, message)
        case .writeTimeout: known(.sendTimeoutError, "Send operation timed out")
        case .closed: known(.closedError, "Socket closed")
        case .hostNotFound: NSError.lookup(fault == .caller ? EAI_NONAME : EAI_AGAIN, message)
        default: errno.map { posix($0) } ?? known(.otherError, message)
        }
    }

    private func known(_ code: GCDAsyncUdpSocketError.Code, _ message: String) -> GCDAsyncUdpSocketError {
        GCDAsyncUdpSocketError(code, userInfo: [NSLocalizedDescriptionKey: message, NSUnderlyingErrorKey: self])
    }
}
