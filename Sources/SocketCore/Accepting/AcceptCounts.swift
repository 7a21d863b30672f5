/// The numbers of connections of an `AcceptQuota`.
package struct AcceptCounts: Sendable {
    /// Open connections. Permits for connections that have not been accepted are not counted.
    package internal(set) var open = 0
    /// Connections that were accepted since the quota was created, and were not refused immediately.
    package internal(set) var accepted = 0
    /// Connections that were refused because of the limit on their source.
    package internal(set) var refusedBySource = 0
    /// Connections that were refused because of the rate limit.
    package internal(set) var refusedByRate = 0
    /// Connections that another connection replaced.
    package internal(set) var replaced = 0

    mutating func noteAccepted() { (open, accepted) = (open + 1, accepted + 1) }
}
