import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Runs `EngineProbe` in a separate process.
@Suite(.timeLimit(.patient)) struct ProbeTests {
    /// - Parameter namespace: Shell commands that set up a private network and mounts for the probe.
    private func run(_ probe: String, _ detail: String? = nil, namespace: String? = nil) async throws -> (
        status: Int32, output: String
    ) {
        try await ProbeProcess.run(
            [probe] + (detail.map { [$0] } ?? []), script: namespace.map { $0 + "; exec \"$0\" \"$1\"" }, hasOwnMounts: true)
    }

    @Test func aListenerWithoutDescriptorsPausesAndLosesNoConnection() async throws {
        let (status, output) = try await run("descriptors")
        #expect(status == 0, "\(output)")
    }

    /// After many connections, the process uses no more descriptors, registrations, pool blocks, OpenSSL
    /// buffers or heap bytes than before.
    @Test(arguments: ["streams", "tls", "datagrams", "dtls", "peers", "strangers"])
    func manyUsesLeakNothing(_ scenario: String) async throws {
        let (status, output) = try await run("resources", scenario)
        #expect(status == 0, "\(output)")
    }

    @Test func aRefusedKeyLogClosesItsFileOnce() async throws {
        let (status, output) = try await run("key-log")
        #expect(status == 0, "\(output)")
    }

    @Test func nothingIsLeftOfAttemptsToConnect() async throws {
        let (status, output) = try await run("connecting")
        #expect(status == 0, "\(output)")
    }

    @Test func aLinkLocalAddressGetsTheScopeOfItsInterface() async throws {
        // The kernel adds the route with a delay of many seconds on a busy machine. Without `nodad`, the
        // address is tentative for a moment, and bind(2) fails with EADDRNOTAVAIL.
        let (status, output) = try await run(
            "scopes",
            namespace: """
                ip link set lo up; ip address add fe80::1/64 dev lo nodad; ip tuntap add dev tun0 mode tun
                timeout 600 sh -c 'until ip -6 route get fe80::1 oif lo >/dev/null 2>&1; do :; done'
                """)
        #expect(status == 0, "\(output)")
    }

    @Test func localhostWorksOnAMachineWithoutIPv6() async throws {
        let (status, output) = try await run(
            "no-ipv6", namespace: "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; ip link set lo up")
        #expect(status == 0, "\(output)")
    }

    @Test func aNameServerThatCannotBeReachedIsNotTheCallersFault() async throws {
        let (status, output) = try await run("no-resolver", namespace: "ip link set lo up")
        #expect(status == 0, "\(output)")
    }

    @Test func aLackOfDescriptorsIsNotTheFaultOfWhoNamesAnInterface() async throws {
        let (status, output) = try await run("shortage")
        #expect(status == 0, "\(output)")
    }

    /// The socket closes immediately if the system call does not exist, and after some seconds if it is
    /// denied.
    @Test(
        arguments: ["run", "connections", "delegate", "receive", "peers", "serve-peers", "peer"],
        [ENOSYS, EACCES, EPERM, EIO])
    func aCallThatIsRefusedEndsItsSocket(user: String, errno: Int32) async throws {
        let (status, output) = try await ProbeProcess.run(["refused", user, "\(errno)"])
        #expect(status == 0, "\(output)")
    }

    /// The error does not blame the peer.
    @Test(arguments: ["receive-soon", "peer-soon"], [ENOSYS, EACCES])
    func aRefusedReceiveNamesTheCallWhenItTimesOut(user: String, errno: Int32) async throws {
        let (status, output) = try await ProbeProcess.run(["refused", user, "\(errno)"])
        #expect(status == 0, "\(output)")
    }

    @Test func failedConnectionsDoNotSpinTheLoop() async throws {
        let (status, output) = try await ProbeProcess.run(["skips"])
        #expect(status == 0, "\(output)")
    }

    @Test func aLoopThatCannotReceiveEventsLogsAnError() async throws {
        let (status, output) = try await ProbeProcess.run(["refused-wait"])
        #expect(status == 0, "\(output)")
    }

    /// Linux rejects a set of 1,024 processors if the kernel is built for more.
    @Test func aMachineMayHaveMoreThan1024Processors() async throws {
        let (_, usual) = try await ProbeProcess.run(["processors"])
        let (status, output) = try await ProbeProcess.run(["processors", "1024"])
        #expect(status == 0 && output == usual && Int(output.dropLast()) != nil, "\(output)")
    }

    /// Uses cgroups version 1 or 2, depending on which allows this process to create a group.
    /// `ProcessorQuotaTests` covers both.
    @Test(arguments: [("50000", "50000 100000", "1\n"), ("-1", "max 100000", nil)])
    func theQuotaOfAControlGroupCounts(older: String, unified: String, expected: String?) async throws {
        let (_, usual) = try await ProbeProcess.run(["processors"])
        let script = """
            for folder in /sys/fs/cgroup /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct; do
                group=$folder/async-sockets-$$
                mkdir $group 2>/dev/null || continue
                if [ -e $group/cpu.cfs_quota_us ]; then echo "$1" >$group/cpu.cfs_quota_us
                elif [ -e $group/cpu.max ]; then echo "$2" >$group/cpu.max
                else rmdir $group; continue
                fi
                (echo 0 >$group/cgroup.procs && exec "$0" processors)
                rmdir $group && exit
            done
            echo none
            """
        let (status, output) = try await ProbeProcess.shell(script, older, unified)
        #expect(status == 0 && (output == "none\n" || output == expected ?? usual), "\(output)")
    }

    @Test(arguments: [EINVAL, ENOSYS, EOPNOTSUPP, EPERM]) func aFileIsSentWithoutSendfile(errno: Int32) async throws {
        let (status, output) = try await ProbeProcess.run(["sendfile", "\(errno)"])
        #expect(status == 0, "\(output)")
    }

    @Test func aDiskThatFillsUpIsNamedAndTheOldFileStays() async throws {
        let (status, output) = try await run("disk", namespace: "ip link set lo up; mount -t tmpfs -o size=256k none /mnt")
        #expect(status == 0, "\(output)")
    }

    @Test func theMemoryOfABurstOfConnectionsIsGivenBack() async throws {
        let (status, output) = try await run("memory")
        #expect(status == 0, "\(output)")
    }

    @Test func aTrimIsFollowedByASecondOne() async throws {
        let (status, output) = try await run("trims")
        #expect(status == 0, "\(output)")
    }

    @Test func aConnectionMayEndDuringTheExitOfTheProcess() async throws {
        let (status, output) = try await run("exit")
        #expect(status == 0, "\(output)")
    }

    @Test func theFreeEndOfAnArenaIsGivenBack() async throws {
        let (status, output) = try await run("arena")
        #expect(status == 0, "\(output)")
    }

    @Test func anEventLoopThatLacksADescriptorFailsAndLeavesNothingBehind() async throws {
        let (status, output) = try await run("loops")
        #expect(status == 0, "\(output)")
    }

    @Test func d9BytesReceivedDuringATrustDecisionCostNoProcessorTime() async throws {
        let (status, output) = try await run("trust")
        #expect(status == 0, "\(output)")
    }

    @Test(arguments: ["options", "anonymous", "old", "weak", "asking", "strict"])
    func openSSLsConfigurationMakesNoContextUnsafe(file: String) async throws {
        let (status, output) = try await run("openssl.cnf", file)
        #expect(status == 0, "\(output)")
    }

    /// `EngineProbe reloads` in a release build opens 100,000 connections during 1,000 reloads.
    @Test func noConnectionFailsDuringReloadsOfAllSettings() async throws {
        let (status, output) = try await run("reloads", "1000")
        #expect(status == 0, "\(output)")
    }

    @Test func aThousandSocketsThatShareADelegateQueueNeedFewThreads() async throws {
        // Dispatch adds a worker when others wait for a processor, for example during builds, so use the
        // minimum of three counts.
        var (status, output) = try await run("threads")
        for _ in 0..<2 where status != 0 { (status, output) = try await run("threads") }
        #expect(status == 0, "\(output)")
    }

    /// Including those that would have been assigned to that loop.
    @Test func newConnectionsGoOnBesideALoopThatIsHeldUp() async throws {
        let (status, output) = try await run("held")
        #expect(status == 0, "\(output)")
    }

    /// Each kind of read and write that can complete immediately. Serialized, because each keeps all
    /// processors busy.
    @Test(
        .serialized,
        arguments: [
            "chunks", "read", "read-exactly", "read-until", "lines", "frames", "next-bytes", "write", "write-span",
        ])
    func theOthersOfALoopGoOnBesideBusyConnections(way: String) async throws {
        let (status, output) = try await run("busy", way)
        #expect(status == 0, "\(output)")
    }
}
