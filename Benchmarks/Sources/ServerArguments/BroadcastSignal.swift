public import ArgumentParser
public import Dispatch
public import Foundation

/// Sends a message to all connections at each SIGUSR1, for `Scripts/scale`.
public struct BroadcastSignal: ParsableArguments {
    /// Whether the signal has this effect.
    @Flag(help: "Send 64 bytes to all connections at each SIGUSR1.")
    public var broadcasts = false

    /// Required by the parser.
    public init() {}

    /// Calls the closure with the message at each signal, as long as the result is retained.
    public func start(_ body: @escaping @Sendable (Data) -> Void) -> (any DispatchSourceSignal)? {
        guard broadcasts else { return nil }
        signal(SIGUSR1, SIG_IGN)
        let source = DispatchSource.makeSignalSource(signal: SIGUSR1)
        source.setEventHandler { body(Data(repeating: UInt8(ascii: "x"), count: 64)) }
        source.resume()
        return source
    }
}
