internal import AsyncSockets
internal import Foundation
internal import ServerArguments
internal import Synchronization

/// Receives transfers and sends the client a receipt.
final class ReceivingService: Service, @unchecked Sendable {
    private enum Tag: Int {
        case header, bytes
    }

    private let receipts = Mutex<[ObjectIdentifier: BulkReceipt]>([:])
    private let borrows: Bool

    init(securesWith settings: TLSServerSettings?, borrows: Bool) {
        self.borrows = borrows
        super.init(securesWith: settings)
    }

    override func begin(_ socket: AsyncSocket) {
        socket.readData(toLength: 8, withTimeout: -1, tag: Tag.header.rawValue)
    }

    override func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        if tag == Tag.header.rawValue {
            receipts.withLock { $0[ObjectIdentifier(socket)] = BulkReceipt(expecting: data.number(at: 0)) }
            goOn(socket)
        } else {
            take(data.count, first: data.first ?? 0, last: data.last ?? 0, from: socket)
        }
    }

    override func socket(_ socket: AsyncSocket, didReadBytes bytes: RawSpan, withTag tag: Int) {
        bytes.withUnsafeBytes { take($0.count, first: $0.first ?? 0, last: $0.last ?? 0, from: socket) }
    }

    private func goOn(_ socket: AsyncSocket) {
        if borrows { socket.readBytes(tag: Tag.bytes.rawValue) } else { socket.readData(tag: Tag.bytes.rawValue) }
    }

    private func take(_ count: Int, first: UInt8, last: UInt8, from socket: AsyncSocket) {
        let verdict = receipts.withLock { receipts in
            let isComplete = receipts[ObjectIdentifier(socket)]?.take(count: count, first: first, last: last)
            return isComplete == true ? receipts[ObjectIdentifier(socket)]?.verdict : nil
        }
        guard let verdict else { return goOn(socket) }
        socket.write(Data(number: verdict), withTimeout: -1, tag: 0)
        begin(socket)
    }

    override func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        super.socketDidDisconnect(socket, withError: error)
        receipts.withLock { $0[ObjectIdentifier(socket)] = nil }
    }
}

/// Sends the requested number of bytes in writes of the requested size.
///
/// Keeps two batches of writes queued. When the last write of a batch completes, the next batch is queued.
final class SourceService: Service, @unchecked Sendable {
    fileprivate struct Transfer {
        var total: Int
        var size: Int
        var pattern: Data
        var position = 0
    }

    private enum Tag: Int {
        case write, lastOfBatch
    }

    private let transfers = Mutex<[ObjectIdentifier: Transfer]>([:])

    override func begin(_ socket: AsyncSocket) {
        socket.readData(toLength: 16, withTimeout: -1, tag: 0)
    }

    override func socket(_ socket: AsyncSocket, didRead request: Data, withTag tag: Int) {
        let (total, size) = (request.number(at: 0), request.number(at: 8))
        guard total >= 0, size > 0, size <= 1 << 30 else { return socket.disconnect() }
        transfers.withLock { transfers in
            var transfer = transfers[ObjectIdentifier(socket)] ?? Transfer(total: total, size: 0, pattern: Data())
            if transfer.size != size { transfer.pattern = Data(BulkPattern.bytes(size)) }
            (transfer.total, transfer.size, transfer.position) = (total, size, 0)
            transfers[ObjectIdentifier(socket)] = transfer
        }
        sendBatch(on: socket)
        sendBatch(on: socket)
        begin(socket)
    }

    override func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
        if tag == Tag.lastOfBatch.rawValue { sendBatch(on: socket) }
    }

    private func sendBatch(on socket: AsyncSocket) {
        let batch = transfers.withLock { $0[ObjectIdentifier(socket)]?.takeBatch() } ?? []
        for (index, write) in batch.enumerated() {
            let tag: Tag = index == batch.count - 1 ? .lastOfBatch : .write
            socket.write(write, withTimeout: -1, tag: tag.rawValue)
        }
    }

    override func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        super.socketDidDisconnect(socket, withError: error)
        transfers.withLock { $0[ObjectIdentifier(socket)] = nil }
    }
}

extension SourceService.Transfer {
    fileprivate mutating func takeBatch() -> [Data] {
        var batch: [Data] = []
        for _ in 0..<BulkPattern.writesAtOnce(ofSize: size) where position < total {
            let begin = position % BulkPattern.period
            batch.append(pattern[begin..<begin + min(size, total - position)])
            position += size
        }
        return batch
    }
}
