// The names are the ones that programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase, NoLeadingUnderscores

public import Foundation

/// The domain of `GCDAsyncUdpSocketError`.
public let GCDAsyncUdpSocketErrorDomain = "GCDAsyncUdpSocketErrorDomain"

/// An error of a UDP socket that is not one of the system.
///
/// The socket delivers it as this type, so `error as? GCDAsyncUdpSocketError` and `(error as NSError).code`
/// both work. `userInfo[NSUnderlyingErrorKey]` has the error of AsyncSockets, which says more.
public struct GCDAsyncUdpSocketError: Error, CustomNSError, Hashable {
    /// The kinds of error, with the numbers of the original.
    public enum Code: Int, Sendable {
        /// Never used.
        case noError = 0
        /// The socket's state does not allow the call.
        case badConfigError = 1
        /// An argument is invalid.
        case badParamError = 2
        /// A datagram was not sent in time.
        case sendTimeoutError = 3
        /// The socket is closed.
        case closedError = 4
        /// Something else: see the description.
        case otherError = 5
    }

    private let contents: NSError

    /// An error with a description and the like in `userInfo`.
    public init(_ code: Code, userInfo: [String: Any] = [:]) {
        contents = NSError(domain: GCDAsyncUdpSocketErrorDomain, code: code.rawValue, userInfo: userInfo)
    }

    init(_ code: Code, _ description: String) {
        self.init(code, userInfo: [NSLocalizedDescriptionKey: description])
    }

    /// The same error, from an `NSError` of its domain.
    public init(_nsError error: NSError) {
        self = GCDAsyncUdpSocketError(error) ?? GCDAsyncUdpSocketError(.otherError, userInfo: error.userInfo)
    }

    private init?(_ error: NSError) {
        guard error.domain == GCDAsyncUdpSocketErrorDomain, Code(rawValue: error.code) != nil else { return nil }
        contents = error
    }

    /// The kind of error.
    public var code: Code { Code(rawValue: contents.code) ?? .otherError }
    /// The description and the like, by the keys of `NSError`.
    public var userInfo: [String: Any] { contents.userInfo }
    /// The description in English.
    public var localizedDescription: String { contents.localizedDescription }

    /// `GCDAsyncUdpSocketErrorDomain`.
    public static var errorDomain: String { GCDAsyncUdpSocketErrorDomain }
    /// The number of the code.
    public var errorCode: Int { contents.code }
    /// The same as `userInfo`.
    public var errorUserInfo: [String: Any] { contents.userInfo }
}

extension GCDAsyncUdpSocketError {
    /// `Code.noError`.
    public static var noError: Code { .noError }
    /// `Code.badConfigError`.
    public static var badConfigError: Code { .badConfigError }
    /// `Code.badParamError`.
    public static var badParamError: Code { .badParamError }
    /// `Code.sendTimeoutError`.
    public static var sendTimeoutError: Code { .sendTimeoutError }
    /// `Code.closedError`.
    public static var closedError: Code { .closedError }
    /// `Code.otherError`.
    public static var otherError: Code { .otherError }
}

extension GCDAsyncUdpSocketError.Code {
    /// Matches an error with this code, as in `catch GCDAsyncUdpSocketError.closedError`.
    public static func ~= (code: Self, error: any Error) -> Bool {
        (error as? GCDAsyncUdpSocketError)?.code == code
    }
}

// This makes `error as? NSError` work from this type, and `error as? GCDAsyncUdpSocketError` from an NSError:
// Swift on Linux casts between the two by this protocol alone.
extension GCDAsyncUdpSocketError: _ObjectiveCBridgeable {
    /// Called by the compiler.
    public func _bridgeToObjectiveC() -> NSError { contents }

    /// Called by the compiler.
    public static func _forceBridgeFromObjectiveC(_ source: NSError, result: inout GCDAsyncUdpSocketError?) {
        result = GCDAsyncUdpSocketError(source)
    }

    /// Called by the compiler.
    public static func _conditionallyBridgeFromObjectiveC(
        _ source: NSError, result: inout GCDAsyncUdpSocketError?
    ) -> Bool {
        result = GCDAsyncUdpSocketError(source)
        return result != nil
    }

    /// Called by the compiler.
    public static func _unconditionallyBridgeFromObjectiveC(_ source: NSError?) -> GCDAsyncUdpSocketError {
        source.flatMap { GCDAsyncUdpSocketError($0) } ?? GCDAsyncUdpSocketError(.otherError)
    }
}
