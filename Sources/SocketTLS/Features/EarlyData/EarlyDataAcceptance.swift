package struct EarlyDataAcceptance: Sendable, Hashable {
    package var limit: Int
    package var responder: TLSEarlyDataResponder?
}
