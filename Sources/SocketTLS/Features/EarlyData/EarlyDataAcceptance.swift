/// The early data that a server takes.
package struct EarlyDataAcceptance: Sendable, Hashable {
    package var limit: Int
    package var responder: TLSEarlyDataResponder?
}
