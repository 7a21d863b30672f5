internal import AsyncSockets
internal import CSimulation
internal import Foundation

/// A peer that is a task.
final class PeerSide: Peer, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    override func run() {
        guard let socket else { return }
        Task { [self] in
            do {
                try await perform(socket)
                finish(nil)
            } catch {
                course.trace.add("fails", index)
                socket.disconnect()
                finish(error)
            }
        }
    }

    private func perform(_ socket: AsyncUDPSocket) async throws {
        if mustConnect, let peerAddress { try await socket.connect(to: peerAddress) }
        // Some messages are sent during the handshake.
        let first = plan.isSecure ? laterNumbers.prefix(course.pick(4, 2 * index)) : laterNumbers.prefix(0)
        if plan.isSecure { try await upgrade(socket, sending: first) }
        async let sending: Void = send(laterNumbers.dropFirst(first.count), socket)
        try await receive(socket)
        try await sending
        if plan.isSecure, index == 1 { await course.suspend(40_000_000_000) }
        try await socket.close()
    }

    private func upgrade(_ socket: AsyncUDPSocket, sending numbers: Range<Int>) async throws {
        try await send(earlyNumbers, socket)
        for _ in 0..<course.pick(4, 2 * index + 1) {
            do {
                try note(await socket.receive(timeout: .milliseconds(5)))
                try await cancelReceive(socket)
            } catch let error as AsyncSocketError where error.code == .readTimeout {}
        }
        async let sending: Void = sendDuringHandshake(numbers, socket)
        if index == 0 {
            try await socket.startDTLS(settings: Certificates.client)
        } else {
            try await socket.startDTLS(settings: Certificates.server)
        }
        noteSecured()
        try await sending
    }

    private func sendDuringHandshake(_ numbers: Range<Int>, _ socket: AsyncUDPSocket) async throws {
        while !course.handshakes.contains(index), !Task.isCancelled { await course.suspend(10_000_000) }
        try await send(numbers, socket)
    }

    // MARK: - Messages

    private func send(_ numbers: Range<Int>, _ socket: AsyncUDPSocket) async throws {
        for number in numbers {
            do {
                if mustConnect {
                    try await socket.send(message(number))
                } else if let peerAddress {
                    try await socket.send(message(number), to: peerAddress)
                }
                noteSent(number)
            } catch let error as AsyncSocketError where error.code == .system {
                // An error of this or an earlier datagram.
                course.trace.add("send fails", index, number)
            }
            if course.pick(4, 2 * index) == 1 { await course.suspend(UInt64(course.pick(20, 2 * index)) * 1_000_000) }
        }
    }

    /// Receives until nothing has arrived for a while.
    private func receive(_ socket: AsyncUDPSocket) async throws {
        while true {
            do {
                if course.pick(6, 2 * index + 1) == 1 { try await cancelReceive(socket) }
                try note(await socket.receive(timeout: .seconds(20)))
            } catch let error as AsyncSocketError where error.code == .readTimeout {
                return
            } catch let error as AsyncSocketError where error.code == .closedByPeer && plan.isSecure {
                return
            }
        }
    }

    /// A cancelled receive loses no datagram.
    private func cancelReceive(_ socket: AsyncUDPSocket) async throws {
        let receiving = Task { try await socket.receive(timeout: .seconds(20)) }
        for _ in 0..<course.pick(4, 2 * index + 1) { await course.yield() }
        receiving.cancel()
        switch await receiving.result {
        case .success(let datagram): note(datagram)
        case .failure(is CancellationError): break
        case .failure(let error): throw error
        }
    }
}
