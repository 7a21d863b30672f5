internal import CSimulation
internal import Glibc

// The system calls that Tests/CSimulation passes on. A negative result is an errno value.

@_cdecl("sim_recv") func simulatedReceive(_ descriptor: Int32, _ room: UnsafeMutableRawPointer?, _ count: Int) -> Int {
    let kernel = Kernel.shared
    kernel.point()
    guard let end = kernel.find(descriptor, StreamEnd.self) else { return -Int(EBADF) }
    switch end.receive(count, kernel) {
    case .failure(let failure):
        kernel.trace("recv", end, -Int(failure.code))
        return -Int(failure.code)
    case .success(let bytes):
        bytes.withUnsafeBytes { if let source = $0.baseAddress { room?.copyMemory(from: source, byteCount: $0.count) } }
        kernel.trace("recv", end, bytes.count)
        return bytes.count
    }
}

@_cdecl("sim_send") func simulatedSend(_ descriptor: Int32, _ parts: UnsafePointer<iovec>, _ count: Int) -> Int {
    let kernel = Kernel.shared
    kernel.point()
    guard let end = kernel.find(descriptor, StreamEnd.self) else { return -Int(EBADF) }
    var bytes: [UInt8] = []
    for part in UnsafeBufferPointer(start: parts, count: count) {
        bytes += UnsafeRawBufferPointer(start: part.iov_base, count: part.iov_len)
    }
    switch end.send(bytes, kernel) {
    case .failure(let failure):
        kernel.trace("send", end, -Int(failure.code), bytes.count)
        return -Int(failure.code)
    case .success(let sent):
        kernel.trace("send", end, sent, bytes.count)
        kernel.point()
        return sent
    }
}

@_cdecl("sim_shutdown") func simulatedShutdown(_ descriptor: Int32, _ how: Int32) -> Int32 {
    let kernel = Kernel.shared
    kernel.point()
    guard let end = kernel.find(descriptor, StreamEnd.self) else { return -EBADF }
    kernel.trace("shutdown", end)
    end.shutDown()
    return 0
}

@_cdecl("sim_close") func simulatedClose(_ descriptor: Int32) -> Int32 {
    let kernel = Kernel.shared
    if let end = kernel.find(descriptor, StreamEnd.self) { kernel.trace("close", end) }
    kernel.close(descriptor)
    return 0
}

@_cdecl("sim_closed_descriptor") func simulatedStray(_ call: UnsafePointer<CChar>, _ descriptor: Int32) -> Int32 {
    let kernel = Kernel.shared
    if descriptor < 0 || kernel.hasClosed(descriptor) {
        kernel.scheduler?.fail("\(String(cString: call)) on a closed descriptor")
    }
    return 0
}

// MARK: - Options and addresses

@_cdecl("sim_get_option") func simulatedGetOption(
    _ descriptor: Int32, _ level: Int32, _ option: Int32, _ value: UnsafeMutableRawPointer,
    _ length: UnsafeMutablePointer<socklen_t>
) -> Int32 {
    if let socket = Kernel.shared.find(descriptor, DatagramSocket.self) {
        return describe(socket, level, option, value, length)
    }
    guard let end = Kernel.shared.find(descriptor, StreamEnd.self) else { return -EBADF }
    if level == Int32(IPPROTO_TCP), option == TCP_INFO { return describe(end, value, length) }
    guard level == SOL_SOCKET, length.pointee >= 4 else { return -ENOPROTOOPT }
    let result: Int32 =
        switch option {
        case SO_TYPE: Int32(SOCK_STREAM.rawValue)
        case SO_DOMAIN: AF_INET
        case SO_PROTOCOL: Int32(IPPROTO_TCP)
        case SO_ERROR: end.takeError()
        default: 0
        }
    value.storeBytes(of: result, as: Int32.self)
    length.pointee = 4
    return 0
}

private func describe(
    _ socket: DatagramSocket, _ level: Int32, _ option: Int32, _ value: UnsafeMutableRawPointer,
    _ length: UnsafeMutablePointer<socklen_t>
) -> Int32 {
    let result: Int32
    switch (level, option) {
    case (SOL_SOCKET, SO_TYPE): result = Int32(SOCK_DGRAM.rawValue)
    case (SOL_SOCKET, SO_DOMAIN): result = AF_INET
    case (SOL_SOCKET, SO_PROTOCOL): result = Int32(IPPROTO_UDP)
    case (SOL_SOCKET, SO_ERROR): result = socket.takeError()
    case (Int32(IPPROTO_IP), IP_MTU): result = 1_500
    case (Int32(IPPROTO_UDP), DatagramSocket.segmentOption) where Kernel.shared.network.splitsMessages: result = 0
    default: return -ENOPROTOOPT
    }
    value.storeBytes(of: result, as: Int32.self)
    length.pointee = 4
    return 0
}

/// Fills in the fields of TCP_INFO that the library uses: `data_segs_in` and `data_segs_out`.
private func describe(
    _ end: StreamEnd, _ value: UnsafeMutableRawPointer, _ length: UnsafeMutablePointer<socklen_t>
) -> Int32 {
    guard length.pointee >= 160 else { return -EINVAL }
    UnsafeMutableRawBufferPointer(start: value, count: 160).initializeMemory(as: UInt8.self, repeating: 0)
    value.storeBytes(of: end.incoming.arrivedCount > 0 ? 1 : 0, toByteOffset: 152, as: UInt32.self)
    value.storeBytes(of: end.outgoing.sentCount > 0 ? 1 : 0, toByteOffset: 156, as: UInt32.self)
    length.pointee = 160
    return 0
}

@_cdecl("sim_set_option") func simulatedSetOption(
    _ descriptor: Int32, _ level: Int32, _ option: Int32, _ value: UnsafeRawPointer, _ length: socklen_t
) -> Int32 {
    guard let object = Kernel.shared.find(descriptor, KernelObject.self) else { return -EBADF }
    // Without coalescing.
    if object is DatagramSocket, level == Int32(IPPROTO_UDP) { return -ENOPROTOOPT }
    if let end = object as? StreamEnd, level == SOL_SOCKET, option == SO_LINGER {
        let setting = value.loadUnaligned(as: linger.self)
        end.resetsOnClose = setting.l_onoff != 0 && setting.l_linger == 0
    }
    return 0
}

@_cdecl("sim_address") func simulatedAddress(
    _ descriptor: Int32, _ isPeer: Bool, _ address: UnsafeMutablePointer<sockaddr>,
    _ length: UnsafeMutablePointer<socklen_t>
) -> Int32 {
    let object = Kernel.shared.find(descriptor, KernelObject.self)
    guard isPeer else { return object?.ownPlace.map { $0.store(address, length) } ?? -EBADF }
    if let socket = object as? DatagramSocket { return socket.peer.map { $0.store(address, length) } ?? -ENOTCONN }
    guard let end = object as? StreamEnd, !end.isConnecting, !end.isBroken else { return -ENOTCONN }
    return end.remotePlace.store(address, length)
}

@_cdecl("sim_readiness") func simulatedReadiness(_ descriptor: Int32) -> Int32 {
    Int32(bitPattern: Kernel.shared.find(descriptor, KernelObject.self)?.readiness ?? 0)
}

// MARK: - Events and timers

@_cdecl("sim_epoll_create") func simulatedEpollCreate() -> Int32 {
    Kernel.shared.open(EventSet(), as: CSim_reserve_epoll())
}

@_cdecl("sim_epoll_control") func simulatedEpollControl(
    _ epoll: Int32, _ operation: Int32, _ descriptor: Int32, _ events: UInt32, _ data: UInt64
) -> Int32 {
    let kernel = Kernel.shared
    guard let set = kernel.find(epoll, EventSet.self), let object = kernel.find(descriptor, KernelObject.self) else {
        if operation != EPOLL_CTL_DEL { kernel.scheduler?.fail("epoll_ctl on a closed descriptor") }
        return -EBADF
    }
    kernel.trace("epoll_ctl", object, Int(operation))
    switch operation {
    case EPOLL_CTL_ADD:
        guard object.watcher == nil else { return -EEXIST }
        kernel.watch(object, by: set)
        set.add(object, events, data)
    case EPOLL_CTL_DEL:
        kernel.watch(object, by: nil)
        return set.remove(descriptor) ? 0 : -ENOENT
    default: return -EINVAL
    }
    return 0
}

@_cdecl("sim_epoll_wait") func simulatedEpollWait(
    _ epoll: Int32, _ room: UnsafeMutablePointer<epoll_event>, _ count: Int32, _ milliseconds: Int32
) -> Int32 {
    let kernel = Kernel.shared
    kernel.point()
    guard let set = kernel.find(epoll, EventSet.self) else { return -EBADF }
    if kernel.happens(kernel.faults.interrupts, set) { return -EINTR }
    if milliseconds < 0 { kernel.scheduler?.wait { set.hasEvents } }
    let events = set.take(Int(count), kernel)
    for (index, event) in events.enumerated() { room[index] = event }
    kernel.trace("epoll_wait", set, events.count)
    return Int32(events.count)
}

@_cdecl("sim_timer_create") func simulatedTimerCreate() -> Int32 { Kernel.shared.open(Timer()) }

@_cdecl("sim_timer_set") func simulatedTimerSet(
    _ descriptor: Int32, _ isAbsolute: Bool, _ value: UInt64, _ interval: UInt64
) -> Int32 {
    let kernel = Kernel.shared
    guard let timer = kernel.find(descriptor, Timer.self) else { return -EBADF }
    let delay: UInt64 = kernel.defect == .isLate && value != 0 ? 5_000_000 : 0
    timer.set((value == 0 || isAbsolute ? value : kernel.now + value) + delay, interval)
    timer.expire(at: kernel.now)
    return 0
}

@_cdecl("sim_event_create") func simulatedEventCreate() -> Int32 { Kernel.shared.open(Counter()) }

@_cdecl("sim_event_write") func simulatedEventWrite(_ descriptor: Int32) -> Int32 {
    let kernel = Kernel.shared
    // Before the write, because the thread may be overtaken between its decision and the call.
    kernel.point()
    guard let counter = kernel.find(descriptor, Counter.self) else { return -EBADF }
    counter.add()
    kernel.point()
    return 0
}

@_cdecl("sim_counter_read") func simulatedCounterRead(
    _ descriptor: Int32, _ room: UnsafeMutablePointer<UInt64>
) -> Int32 {
    let kernel = Kernel.shared
    let count = kernel.find(descriptor, Timer.self)?.take() ?? kernel.find(descriptor, Counter.self)?.take()
    guard let count else { return -EAGAIN }
    room.pointee = count
    return 8
}

// MARK: - Time and threads

@_cdecl("sim_clock") func simulatedClock() -> UInt64 {
    Kernel.shared.point()
    return Kernel.shared.look()
}

/// Returns the time since the beginning of the run.
@_cdecl("sim_calendar") func simulatedCalendar() -> UInt64 { Kernel.shared.timeOfRun }

@_cdecl("sim_futex_wait") func simulatedFutexWait(_ word: UnsafeRawPointer, _ expected: UInt32) -> Int32 {
    // The holder of the lock is another simulated thread, which runs meanwhile.
    Kernel.shared.scheduler?.wait { word.load(as: UInt32.self) != expected }
    return 0
}

@_cdecl("sim_pass") func simulatedPass() -> Int32 {
    Kernel.shared.point()
    return 0
}
