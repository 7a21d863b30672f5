/// Something that is done to the bytes of one direction. Offsets count the bytes that the sending side has
/// sent, from 0; a tampering happens as soon as so many bytes have passed, without waiting for the next one.
/// Several at one offset happen in the order given.
public enum Tampering: Sendable {
    /// Passes bytes on in segments of this many bytes.
    case pieces(of: Int)
    /// Begins a new segment.
    case newSegment(at: Int)
    /// Adds bytes that no one has sent, in the segment of the bytes around them.
    case inject([UInt8], at: Int)
    /// Changes the byte behind `at`: the bits that are set in `xor` are flipped.
    case alter(at: Int, xor: UInt8)
    /// Swallows bytes.
    case drop(Range<Int>)
    /// Passes nothing on until the test gives the signal.
    case hold(at: Int, until: TestSignal)
    /// Ends the direction with FIN, and swallows the rest.
    case truncate(at: Int)
    /// Resets both connections.
    case reset(at: Int)
}
