public import SocketTLS

extension ScriptedPeer {
    /// One action of a scripted peer. After `startTLS` the steps mean plaintext, unless they say "raw".
    public struct Step: Sendable, CustomStringConvertible {
        let action: Action
        /// The step as the script names it.
        public let description: String

        enum Action {
            case expect([UInt8])
            case expectThrough([UInt8])
            case expectClientHello
            case expectEnd
            case expectReset
            case send([UInt8], pieces: Int?)
            case sendRaw([UInt8])
            case wait(TestSignal)
            case fire(TestSignal)
            case startTLS(TLSSettingValues, HandshakeCut?)
            case sendCloseNotify
            case finish
            case close
            case reset
        }
    }

    /// Where a handshake is broken off, and how.
    public struct HandshakeCut: Sendable, Hashable {
        /// How many bytes of the handshake the peer sends.
        public var byteCount: Int
        /// The ending that follows them.
        public var ending: Ending

        /// The handshake is broken off after `byteCount` bytes of this peer.
        public init(after byteCount: Int, _ ending: Ending) {
            self.byteCount = byteCount
            self.ending = ending
        }

        /// How a handshake is broken off.
        public enum Ending: Sendable, Hashable, CaseIterable {
            /// With FIN.
            case finish
            /// With RST.
            case reset
            /// By sending nothing more; the connection stays open.
            case silence
        }
    }
}

extension ScriptedPeer.Step {
    /// Waits for exactly these bytes, and fails at the first byte that differs. Bytes behind them are left
    /// for the next step.
    public static func expect(_ bytes: [UInt8]) -> Self {
        Self(action: .expect(bytes), description: "expect \(bytes.count) bytes")
    }

    /// Waits for exactly this text.
    public static func expect(_ text: String) -> Self {
        Self(action: .expect(Array(text.utf8)), description: "expect \(text.debugDescription)")
    }

    /// Waits for bytes up to and including the first `delimiter`. The report contains them.
    public static func expect(through delimiter: String) -> Self {
        Self(action: .expectThrough(Array(delimiter.utf8)), description: "expect through \(delimiter.debugDescription)")
    }

    /// Waits until a whole TLS record has come, and leaves it for the next `startTLS`. Use it to inject bytes
    /// late, after the other side has begun the handshake.
    public static var expectClientHello: Self { Self(action: .expectClientHello, description: "expectClientHello") }

    /// Waits until the other side ends in order: with FIN, or with close_notify under TLS. Bytes before the
    /// end are a failure.
    public static var expectEnd: Self { Self(action: .expectEnd, description: "expectEnd") }

    /// Waits until the other side resets the connection. Bytes before the reset are dropped.
    public static var expectReset: Self { Self(action: .expectReset, description: "expectReset") }

    /// Sends bytes at once, in one segment if they fit, or in segments of `pieces` bytes.
    public static func send(_ bytes: [UInt8], inPiecesOf pieces: Int? = nil) -> Self {
        Self(action: .send(bytes, pieces: pieces), description: "send \(bytes.count) bytes")
    }

    /// Sends text at once, in one segment if it fits, or in segments of `pieces` bytes.
    public static func send(_ text: String, inPiecesOf pieces: Int? = nil) -> Self {
        Self(action: .send(Array(text.utf8), pieces: pieces), description: "send \(text.debugDescription)")
    }

    /// Sends bytes past TLS, straight on the wire.
    public static func sendRaw(_ bytes: [UInt8]) -> Self {
        Self(action: .sendRaw(bytes), description: "sendRaw \(bytes.count) bytes")
    }

    /// Waits until the test fires a signal. The peer does not even read meanwhile.
    public static func wait(for signal: TestSignal) -> Self { Self(action: .wait(signal), description: "wait for a signal") }

    /// Fires a signal, to show the test that the script has come this far.
    public static func fire(_ signal: TestSignal) -> Self { Self(action: .fire(signal), description: "fire a signal") }

    /// Performs a TLS handshake, as client or server according to the settings. Bytes that no step has taken
    /// yet go into it.
    ///
    /// With `cut`, the step ends when the handshake is broken off, and the peer cannot use TLS afterwards. If
    /// the settings leave a trust decision to a callback, the peer accepts.
    public static func startTLS(_ settings: TLSSettings<some TLSSide>, cut: ScriptedPeer.HandshakeCut? = nil) -> Self {
        Self(action: .startTLS(settings.values, cut), description: "startTLS")
    }

    /// Ends TLS in order, with close_notify; the connection stays open until `finish`.
    public static var sendCloseNotify: Self { Self(action: .sendCloseNotify, description: "sendCloseNotify") }

    /// Sends FIN. Under TLS this is a truncation, unless `sendCloseNotify` comes before it.
    public static var finish: Self { Self(action: .finish, description: "finish") }

    /// Closes the connection at once, as most programs do when they end: it sends a FIN, and a reset for
    /// bytes that come later. Under TLS this is a truncation, unless `sendCloseNotify` comes before it. Steps
    /// that need a connection cannot follow.
    public static var close: Self { Self(action: .close, description: "close") }

    /// Resets the connection (RST). Steps that need a connection cannot follow.
    public static var reset: Self { Self(action: .reset, description: "reset") }
}
