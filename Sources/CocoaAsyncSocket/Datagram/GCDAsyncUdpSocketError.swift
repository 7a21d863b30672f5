// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase, NoLeadingUnderscores

internal import AsyncSockets
public import Foundation

/// The domain of `GCDAsyncUdpSocketError`.
public let GCDAsyncUdpSocketErrorDomain = "GCDAsyncUdpSocketErrorDomain"

/// An error from a UDP socket, other than a system error.
///
/// The delegate receives errors of this type, so both `error as? GCDAsyncUdpSocketError` and `(error as
/// NSError).code` work. `userInfo[NSUnderlyingErrorKey]` contains the more detailed error from AsyncSockets.
public struct GCDAsyncUdpSocketError: Error, CustomNSError, Hashable {
    /// The kinds of error, with the same numbers as on Apple platforms.
    public enum Code: Int, Sendable {
        /// Never used.
        case noError = 0
        /// The socket's state does not allow the call.
        case badConfigError = 1
        /// An argument is invalid.
        case badParamError = 2
        /// A datagram was not sent before its timeout.
        case sendTimeoutError = 3
        /// The socket is closed.
        case closedError = 4
        /// Any other error. See the description.
        case otherError = 5
    }

    private let contents: NSError

    /// Creates an error with a description and other details in `userInfo`.
    public init(_ code: Code, userInfo: [String: Any] = [:]) {
        contents = NSError(domain: GCDAsyncUdpSocketErrorDomain, code: code.rawValue, userInfo: userInfo)
    }

    init(_ code: Code, _ description: String) {
        self.init(code, userInfo: [NSLocalizedDescriptionKey: description])
    }

    /// Creates the error that an `NSError` of the same domain represents.
    public init(_nsError error: NSError) {
        self = GCDAsyncUdpSocketError(error) ?? GCDAsyncUdpSocketError(.otherError, userInfo: error.userInfo)
    }

    private init?(_ error: NSError) {
        guard error.domain == GCDAsyncUdpSocketErrorDomain, Code(rawValue: error.code) != nil else { return nil }
        contents = error
    }

    /// The kind of error.
    public var code: Code { Code(rawValue: contents.code) ?? .otherError }
    /// The description and other details, by `NSError` key.
    public var userInfo: [String: Any] { contents.userInfo }
    /// The description in English.
    public var localizedDescription: String { contents.localizedDescription }

    /// The domain, `GCDAsyncUdpSocketErrorDomain`.
    public static var errorDomain: String { GCDAsyncUdpSocketErrorDomain }
    /// The number of the code.
    public var errorCode: Int { contents.code }
    /// The same value as `userInfo`.
    public var errorUserInfo: [String: Any] { contents.userInfo }
}

extension GCDAsyncUdpSocketError {
    /// The code `Code.noError`.
    public static var noError: Code { .noError }
    /// The code `Code.badConfigError`.
    public static var badConfigError: Code { .badConfigError }
    /// The code `Code.badParamError`.
    public static var badParamError: Code { .badParamError }
    /// The code `Code.sendTimeoutError`.
    public static var sendTimeoutError: Code { .sendTimeoutError }
    /// The code `Code.closedError`.
    public static var closedError: Code { .closedError }
    /// The code `Code.otherError`.
    public static var otherError: Code { .otherError }
}

extension GCDAsyncUdpSocketError.Code {
    /// Returns whether an error has this code, for patterns such as `catch
    /// GCDAsyncUdpSocketError.closedError`.
    public static func ~= (code: Self, error: any Error) -> Bool {
        (error as? GCDAsyncUdpSocketError)?.code == code
    }
}

// Enables `error as? NSError` for this type, and `error as? GCDAsyncUdpSocketError` for an NSError. On Linux,
// this protocol is Swift's only way to cast between the two.
extension GCDAsyncUdpSocketError: _ObjectiveCBridgeable {
    /// Bridges to `NSError`. Called by the compiler.
    public func _bridgeToObjectiveC() -> NSError { contents }

    /// Bridges from `NSError`. Called by the compiler.
    public static func _forceBridgeFromObjectiveC(_ source: NSError, result: inout GCDAsyncUdpSocketError?) {
        result = GCDAsyncUdpSocketError(source)
    }

    /// Bridges from `NSError` if the domain and code match. Called by the compiler.
    public static func _conditionallyBridgeFromObjectiveC(
        _ source: NSError, result: inout GCDAsyncUdpSocketError?
    ) -> Bool {
        result = GCDAsyncUdpSocketError(source)
        return result != nil
    }

    /// Bridges from `NSError`, or returns `otherError`. Called by the compiler.
    public static func _unconditionallyBridgeFromObjectiveC(_ source: NSError?) -> GCDAsyncUdpSocketError {
        source.flatMap { GCDAsyncUdpSocketError($0) } ?? GCDAsyncUdpSocketError(.otherError)
    }
}

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

// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase
