/// The question for the key of an identity.
package struct KeyQuestion: Sendable {
    let keys: TLSPreSharedKeys
    let identity: [UInt8]

    func answer() async -> KeyAnswer {
        do {
            return .found(try await keys.lookUp(identity))
        } catch {
            return .failed("\(error)")
        }
    }
}

package enum KeyAnswer: Sendable {
    /// The pre-shared key, or `nil` if the identity is unknown.
    case found(TLSPreSharedKey?)
    /// The function threw an error, with this description.
    case failed(String)
}
