/// The state of the expensive work that an engine hands over to another thread.
enum EngineWork {
    /// The engine computes on the calling thread.
    case inPlace
    case none
    /// OpenSSL has stopped and needs a thread for the work.
    case wanted
    case underway
    /// The step is complete, with this outcome.
    case done(OpenSSLCall.Outcome)
}
