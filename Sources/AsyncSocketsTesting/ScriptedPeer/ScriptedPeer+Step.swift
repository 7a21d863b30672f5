public import SocketTLS

extension ScriptedPeer {
    /// One action of a scripted peer. After `startTLS`, steps refer to plaintext unless their name contains
    /// "raw".
    public struct Step: Sendable, CustomStringConvertible {
        let action: Action
        /// The step in the notation of the script.
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

    /// Where and how a handshake is cut off.
    public struct HandshakeCut: Sendable, Hashable {
        /// The number of handshake bytes that the peer sends.
        public var byteCount: Int
        /// The action that follows once the peer has sent those bytes.
        public var ending: Ending

        /// Cuts off the handshake after the peer has sent `byteCount` bytes.
        public init(after byteCount: Int, _ ending: Ending) {
            self.byteCount = byteCount
            self.ending = ending
        }

        /// The way in which a handshake is cut off.
        public enum Ending: Sendable, Hashable, CaseIterable {
            /// The peer sends FIN.
            case finish
            /// The peer sends RST.
            case reset
            /// The peer sends no more bytes, but the connection stays open.
            case silence
        }
    }
}

extension ScriptedPeer.Step {
    /// Receives exactly these bytes. The step fails at the first byte that differs. Any further bytes are
    /// kept for the next step.
    public static func expect(_ bytes: [UInt8]) -> Self {
        Self(action: .expect(bytes), description: "expect \(bytes.count) bytes")
    }

    /// Receives exactly this text. The step fails at the first byte that differs.
    public static func expect(_ text: String) -> Self {
        Self(action: .expect(Array(text.utf8)), description: "expect \(text.debugDescription)")
    }

    /// Receives bytes up to and including the first `delimiter`. The report contains them.
    public static func expect(through delimiter: String) -> Self {
        Self(action: .expectThrough(Array(delimiter.utf8)), description: "expect through \(delimiter.debugDescription)")
    }

    /// Receives a complete TLS record and keeps it for the next `startTLS`. Use this step to inject bytes
    /// late, after the other side has started the handshake.
    public static var expectClientHello: Self { Self(action: .expectClientHello, description: "expectClientHello") }

    /// Expects the other side to close cleanly: with FIN, or with close_notify under TLS. The step fails if
    /// any bytes arrive first.
    public static var expectEnd: Self { Self(action: .expectEnd, description: "expectEnd") }

    /// Expects the other side to reset the connection. Bytes before the reset are discarded.
    public static var expectReset: Self { Self(action: .expectReset, description: "expectReset") }

    /// Sends bytes immediately: in one segment if they fit, or in segments of `pieces` bytes.
    public static func send(_ bytes: [UInt8], inPiecesOf pieces: Int? = nil) -> Self {
        Self(action: .send(bytes, pieces: pieces), description: "send \(bytes.count) bytes")
    }

    /// Sends text immediately: in one segment if it fits, or in segments of `pieces` bytes.
    public static func send(_ text: String, inPiecesOf pieces: Int? = nil) -> Self {
        Self(action: .send(Array(text.utf8), pieces: pieces), description: "send \(text.debugDescription)")
    }

    /// Sends bytes directly on the wire, bypassing TLS.
    public static func sendRaw(_ bytes: [UInt8]) -> Self {
        Self(action: .sendRaw(bytes), description: "sendRaw \(bytes.count) bytes")
    }

    /// Pauses the script until the test fires a signal. The peer does not receive data in the meantime.
    public static func wait(for signal: TestSignal) -> Self { Self(action: .wait(signal), description: "wait for a signal") }

    /// Fires a signal to notify the test that the script has reached this step.
    public static func fire(_ signal: TestSignal) -> Self { Self(action: .fire(signal), description: "fire a signal") }

    /// Performs a TLS handshake as client or server, depending on the settings. The handshake includes
    /// bytes that no step has consumed yet.
    ///
    /// With `cut`, the step completes when the handshake has been cut off, and the peer cannot use TLS
    /// afterwards. If the settings delegate the trust decision to a callback, the peer trusts the other
    /// side.
    public static func startTLS(_ settings: TLSSettings<some TLSRole.Side>, cut: ScriptedPeer.HandshakeCut? = nil) -> Self {
        Self(action: .startTLS(settings.values, cut), description: "startTLS")
    }

    /// Closes TLS cleanly with close_notify. The connection stays open until `finish`.
    public static var sendCloseNotify: Self { Self(action: .sendCloseNotify, description: "sendCloseNotify") }

    /// Sends FIN. Under TLS, this is a truncation unless `sendCloseNotify` precedes it.
    public static var finish: Self { Self(action: .finish, description: "finish") }

    /// Closes the connection immediately, as most programs do when they exit. The peer sends FIN, and a
    /// reset in response to bytes that arrive later. Under TLS, this is a truncation unless
    /// `sendCloseNotify` precedes it. No step that needs a connection may follow.
    public static var close: Self { Self(action: .close, description: "close") }

    /// Resets the connection (RST). No step that needs a connection may follow.
    public static var reset: Self { Self(action: .reset, description: "reset") }
}
