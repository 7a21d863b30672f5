import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Transcripts of `DataPath` over a socket pair, without a turn or an event loop: requests and arriving data,
/// and the resulting events.
@Suite struct DataPathTests {
    private enum Input {
        case read(ReadPacket.Goal, Int)
        case write(String, Int)
        case arrives(String)
        case peerEnds
        case close(CloseIntent)
        case closeWriting
        case startTLS
        /// The delegate is asked whether to extend the read, and declines.
        case readIsLate
        case nothing
    }

    private final class Transcript {
        let data: DataPath
        private let outbox = EventOutbox<DelegateEvent>()
        private let end: ChannelEnd
        let peer: RawSocket

        init(_ configure: (inout SocketConfiguration) -> Void = { _ in }) throws {
            (end, peer) = try ChannelEnd.pair()
            data = DataPath(outbox)
            var configuration = SocketConfiguration()
            configure(&configuration)
            data.configuration = SocketConfiguration.Shared(configuration)
            data.open(end.channel)
        }

        /// Plays an input, and returns the delegate's events and whether the connection ends.
        func play(_ input: Input) throws -> [String] {
            try take(input)
            var said: [String] = []
            while data.needsPump {
                data.needsPump = false
                let fate = data.pump()
                data.watchMark()
                said += words()
                if case .ends(let error) = fate {
                    said.append(error.map { "ends: \($0.code)" } ?? "ends")
                    break
                }
            }
            return said
        }

        private func take(_ input: Input) throws {
            switch input {
            case .read(let goal, let tag): data.enqueue(ReadPacket.make(goal, timeout: -1, tag: tag))
            case .write(let text, let tag):
                let completion = data.enqueue(WritePacket(data: Data(text.utf8), timeout: -1, tag: tag))
                #expect(completion == nil)
            case .arrives(let text):
                try peer.send(text)
                data.note(.readable)
            case .peerEnds:
                peer.finish()
                data.note([.readable, .readHangup])
            case .close(let intent): data.close(intent)
            case .closeWriting: data.closeWriting()
            case .startTLS: data.appendStartTLS()
            case .readIsLate: data.abandonRead(.timeout(.readTimeout, .read, seconds: 1))
            case .nothing: data.needsPump = true
            }
        }

        private func words() -> [String] {
            var words: [String] = []
            while let event = outbox.waiting.popFirst() { words.append(Self.word(event)) }
            return words
        }

        private static func word(_ event: DelegateEvent) -> String {
            switch event {
            case .didRead(let data, let tag): "read \(tag): \(String(decoding: data, as: UTF8.self))"
            case .didReadPartial(let count, let tag): "part of \(tag): \(count)"
            case .didNotRead(let data, let tag, let error):
                "not read \(tag): \(String(decoding: data, as: UTF8.self)), \(error.code)"
            case .didWrite(let tag): "wrote \(tag)"
            case .didCloseReadStream: "read side closed"
            case .didWritePartial(let count, let tag): "partly wrote \(tag): \(count)"
            case .highWater(let count): "high water \(count)"
            case .lowWater(let count): "low water \(count)"
            default: "\(event)"
            }
        }
    }

    private func expect(
        _ rows: [(Input, [String])], of transcript: Transcript? = nil, at place: SourceLocation = #_sourceLocation
    ) throws {
        let transcript = try transcript ?? Transcript()
        for (number, (input, words)) in rows.enumerated() {
            let said = try transcript.play(input)
            #expect(said == words, "row \(number): \(input)", sourceLocation: place)
        }
    }

    private static let line = ReadPacket.Goal.delimiter(Data("\n".utf8))

    // MARK: - Reads

    @Test func readsAreServedInTheirOrder() throws {
        try expect([
            (.read(Self.line, 1), []),
            (.arrives("hel"), ["part of 1: 3"]),
            (.read(.length(2), 2), []),
            (.arrives("lo\nab"), ["read 1: hello\n", "read 2: ab"]),
            (.arrives("cd"), []),
            (.read(.anyBytes, 3), ["read 3: cd"]),
            (.read(.length(0), 4), ["read 4: "]),
        ])
    }

    @Test func aLateReadIsGivenUpAndTheNextIsServed() throws {
        try expect([
            (.read(.length(4), 1), []),
            (.read(.length(1), 2), []),
            (.arrives("ab"), ["part of 1: 2"]),
            (.readIsLate, []),
            (.nothing, ["not read 1: ab, readTimeout"]),
            (.arrives("c"), ["read 2: c"]),
        ])
    }

    @Test func tooMuchEndsTheConnection() throws {
        let transcript = try Transcript()
        transcript.data.enqueue(ReadPacket.make(Self.line, maxLength: 3, timeout: -1, tag: 1))
        try expect([(.arrives("abcd"), ["ends: readMaxedOut"])], of: transcript)
    }

    /// A pump has four rounds with one recv each, and then yields to other connections.
    @Test func oneTurnHasBounds() throws {
        let transcript = try Transcript()
        for tag in 1...6 { transcript.data.enqueue(ReadPacket.make(.anyBytes, timeout: -1, tag: tag)) }
        // Each recv returns only one of them, although all are in the kernel.
        for letter in "abcdef".utf8 { sendWithDescriptor([letter], to: transcript.peer.descriptor) }
        transcript.data.note(.readable)
        try expect([(.nothing, ["read 1: a", "read 2: b", "read 3: c", "read 4: d"])], of: transcript)
        let (isUnfinished, isAskedAgain) = (transcript.data.endTurn(), transcript.data.endTurn())
        #expect(isUnfinished && !isAskedAgain)
        try expect([(.nothing, ["read 5: e", "read 6: f"])], of: transcript)
        let wantsMore = transcript.data.endTurn()
        #expect(!wantsMore && transcript.data.carried == CarriedBytes(received: 6, sent: 0))
    }

    // MARK: - Writes

    @Test func aWriteIsAnsweredOnceItHasLeft() throws {
        let transcript = try Transcript()
        try expect([(.write("one ", 1), ["wrote 1"]), (.write("", 2), []), (.write("two", 3), ["wrote 3"])], of: transcript)
        #expect(try transcript.peer.receiveText() == "one two")
        #expect(transcript.data.carried == CarriedBytes(received: 0, sent: 7))
    }

    @Test func theMarkIsReportedOnBothWays() throws {
        let transcript = try Transcript { $0.writeHighWaterMark = 1_000_000 }
        let full = String(repeating: "x", count: 4_000_000)
        let said = try transcript.play(.write(full, 1)).filter { !$0.hasPrefix("partly") }
        #expect(said.count == 1 && said.first?.hasPrefix("high water") == true, "\(said)")
        var words: [String] = []
        while transcript.data.writes.waitingByteCount > 0 {
            _ = try transcript.peer.receive()
            transcript.data.note(.writable)
            words += try transcript.play(.nothing).filter { !$0.hasPrefix("partly") }
        }
        #expect(words.count == 2 && words[0].hasPrefix("low water") && words[1] == "wrote 1", "\(words)")
    }

    // MARK: - TLS

    /// Operations before the markers are served. Those behind them are not.
    @Test func whatIsBehindTheMarkersWaits() throws {
        try expect([
            (.read(.length(1), 1), []),
            (.startTLS, []),
            (.read(.length(1), 2), []),
            (.write("late", 3), []),
            (.arrives("ab"), ["read 1: a"]),
            (.nothing, []),
        ])
    }

    @Test func earlyBytesOfTheHandshakeAreNotTheReaders() throws {
        let transcript = try Transcript()
        _ = try transcript.play(.arrives("hello"))
        #expect(transcript.data.carried.received == 5)
        transcript.data.secure(earlyByteCount: 5, after: CarriedBytes())
        #expect(transcript.data.carried.received == 0)
    }

    // MARK: - The end

    @Test func unreadBytesHoldUpTheEnd() throws {
        try expect([
            (.arrives("ab"), []),
            (.peerEnds, []),
            (.read(.length(1), 1), ["read 1: a"]),
            (.read(.length(1), 2), ["read 2: b", "ends: closedByPeer"]),
        ])
    }

    @Test func aReadToTheEndIsCompleteWithIt() throws {
        try expect([
            (.read(.end, 1), []),
            (.arrives("ab"), ["part of 1: 2"]),
            (.peerEnds, ["read 1: ab", "ends: closedByPeer"]),
        ])
    }

    @Test func onAHalfOpenConnectionOurSideGoesOn() throws {
        try expect(
            [
                (.read(.length(9), 1), []),
                (.arrives("ab"), ["part of 1: 2"]),
                (.peerEnds, ["read side closed", "not read 1: ab, closedByPeer"]),
                (.write("late", 2), ["wrote 2"]),
                (.closeWriting, ["ends: closedByPeer"]),
            ], of: Transcript { $0.autoDisconnectOnClosedReadStream = false })
    }

    @Test(arguments: [(CloseIntent.afterWrites, ["ends"]), (.afterReads, [])])
    func theCallersEndWaitsForWhatItNames(intent: CloseIntent, atOnce: [String]) throws {
        try expect([
            (.read(.length(2), 1), []),
            (.close(intent), atOnce),
        ])
    }

    @Test func afterTheCallersEndNothingIsAccepted() throws {
        let transcript = try Transcript()
        try expect([(.read(.length(2), 1), []), (.close(.afterReads), [])], of: transcript)
        let (read, write) = (CountingWaiter<Data>(), CountingWaiter<Void>())
        transcript.data.enqueue(ReadPacket.make(.anyBytes, timeout: -1, completion: .waiter(read)))
        _ = transcript.data.enqueue(WritePacket(data: Data([1]), timeout: -1, completion: .waiter(write)))
        #expect(read.outcomes == [.failed(.closed)] && write.outcomes == [.failed(.closed)])
        try expect([(.arrives("ab"), ["read 1: ab", "ends"])], of: transcript)
    }

    // MARK: - Giving up

    @Test func theBytesOfACancelledReadAreForTheNext() throws {
        let (transcript, waiter) = (try Transcript(), CountingWaiter<Data>())
        transcript.data.enqueue(ReadPacket.make(.length(3), timeout: -1, completion: .waiter(waiter)))
        try expect([(.arrives("ab"), [])], of: transcript)
        #expect(transcript.data.cancel(waiter, CancellationError()) && waiter.outcomes == [.cancelled])
        #expect(!transcript.data.cancel(waiter, CancellationError()) && waiter.outcomes.count == 1)
        try expect([(.read(.anyBytes, 1), ["read 1: ab"])], of: transcript)
    }

    @Test func whatIsDroppedIsAnsweredOnce() throws {
        let (transcript, read, write) = (try Transcript(), CountingWaiter<Data>(), CountingWaiter<Void>())
        try expect([(.arrives("unread"), []), (.startTLS, [])], of: transcript)
        transcript.data.enqueue(ReadPacket.make(.anyBytes, timeout: -1, completion: .waiter(read)))
        _ = transcript.data.enqueue(WritePacket(data: Data("x".utf8), timeout: -1, completion: .waiter(write)))
        let loss = transcript.data.drop(.closedByPeer)
        #expect(loss?.hasBytes == true && loss?.writes?.error.code == .closedByPeer && loss?.writes?.isAnswered == false)
        #expect(read.outcomes == [.failed(.closedByPeer)] && write.outcomes == [.failed(.closedByPeer)])
        #expect(transcript.data.drop(.closedByPeer) == nil && read.outcomes.count == 1 && write.outcomes.count == 1)
    }
}
