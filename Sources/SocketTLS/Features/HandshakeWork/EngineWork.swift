/// How far the work is that an engine does not do where it is called.
enum EngineWork {
    /// It computes where it is called.
    case inPlace
    /// There is nothing to do.
    case none
    /// OpenSSL has stopped for it.
    case wanted
    case underway
    /// The step is done, and this is how it ended.
    case done(OpenSSLCall.Outcome)
}
