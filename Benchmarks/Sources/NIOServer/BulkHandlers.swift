internal import NIOCore
internal import ServerArguments

/// Receives transfers and sends the client a receipt.
final class ReceivingHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private var header = ByteBuffer()
    private var receipt: BulkReceipt?

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = Self.unwrapInboundIn(data)
        if receipt == nil {
            guard var part = bytes.readSlice(length: min(8 - header.readableBytes, bytes.readableBytes)) else { return }
            header.writeBuffer(&part)
            guard let length = header.readInteger(endianness: .little, as: UInt64.self) else { return }
            header.clear()
            receipt = BulkReceipt(expecting: Int(length))
        }
        let view = bytes.readableBytesView
        guard let first = view.first, let last = view.last else { return }
        guard receipt?.take(count: view.count, first: first, last: last) == true, let verdict = receipt?.verdict else { return }
        receipt = nil
        var answer = context.channel.allocator.buffer(capacity: 8)
        answer.writeInteger(verdict, endianness: .little)
        context.writeAndFlush(Self.wrapOutboundOut(answer), promise: nil)
    }
}

/// Sends the requested number of bytes in writes of the requested size while the channel is writable.
final class SourceHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private var request = ByteBuffer()
    private var pattern = ByteBuffer()
    private var (total, size, position) = (0, 0, 0)

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = Self.unwrapInboundIn(data)
        request.writeBuffer(&bytes)
        guard request.readableBytes >= 16, let total = request.readInteger(endianness: .little, as: UInt64.self),
            let size = request.readInteger(endianness: .little, as: UInt64.self), size > 0, size <= 1 << 30
        else { return }
        request.clear()
        if self.size != Int(size) { pattern = ByteBuffer(bytes: BulkPattern.bytes(Int(size))) }
        (self.total, self.size, position) = (Int(total), Int(size), 0)
        sendMore(context)
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        sendMore(context)
        context.fireChannelWritabilityChanged()
    }

    private func sendMore(_ context: ChannelHandlerContext) {
        while position < total, context.channel.isWritable {
            for _ in 0..<BulkPattern.writesAtOnce(ofSize: size) where position < total {
                let length = min(size, total - position)
                guard let bytes = pattern.getSlice(at: position % BulkPattern.period, length: length) else { return }
                context.write(Self.wrapOutboundOut(bytes), promise: nil)
                position += length
            }
            context.flush()
        }
    }
}
