import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Runs `EngineProbe`, which has a process to itself.
@Suite(.timeLimit(.patient)) struct ProbeTests {
    /// - Parameter namespace: Shell commands that set up a network and mounts for the probe alone.
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

    /// The process uses as many descriptors, registrations, pool blocks, OpenSSL buffers and heap bytes after
    /// many connections as before.
    @Test(arguments: ["streams", "tls", "datagrams", "dtls", "peers", "strangers"])
    func nothingIsLeftOfManyUses(_ scenario: String) async throws {
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
        // The kernel adds the route later: on a busy machine, many seconds. Without `nodad` the address is
        // tentative for a moment, and bind(2) fails with EADDRNOTAVAIL.
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

    @Test func aDiskThatFillsUpIsNamedAndTheOldFileStays() async throws {
        let (status, output) = try await run("disk", namespace: "ip link set lo up; mount -t tmpfs -o size=256k none /mnt")
        #expect(status == 0, "\(output)")
    }

    @Test func theMemoryOfABurstOfConnectionsIsGivenBack() async throws {
        let (status, output) = try await run("memory")
        #expect(status == 0, "\(output)")
    }

    @Test func anEventLoopThatLacksADescriptorFailsAndLeavesNothingBehind() async throws {
        let (status, output) = try await run("loops")
        #expect(status == 0, "\(output)")
    }

    @Test func d9BytesThatArriveDuringATrustPauseCostNoProcessorTime() async throws {
        let (status, output) = try await run("trust")
        #expect(status == 0, "\(output)")
    }

    @Test(arguments: ["options", "anonymous", "old", "weak", "asking", "strict"])
    func openSSLsConfigurationMakesNoContextUnsafe(file: String) async throws {
        let (status, output) = try await run("openssl.cnf", file)
        #expect(status == 0, "\(output)")
    }

    /// A release build makes 100,000 connections during 1,000 reloads: `EngineProbe reloads`.
    @Test func noConnectionFailsDuringReloadsOfAllSettings() async throws {
        let (status, output) = try await run("reloads", "1000")
        #expect(status == 0, "\(output)")
    }

    @Test func aThousandSocketsThatShareADelegateQueueNeedFewThreads() async throws {
        // Dispatch adds a worker when others wait for a processor, as beside builds: the least of three
        // counts.
        var (status, output) = try await run("threads")
        for _ in 0..<2 where status != 0 { (status, output) = try await run("threads") }
        #expect(status == 0, "\(output)")
    }

    /// Also those that would have come to that loop.
    @Test func newConnectionsGoOnBesideALoopThatIsHeldUp() async throws {
        let (status, output) = try await run("held")
        #expect(status == 0, "\(output)")
    }

    /// Each way to read and to write that may be served at once. One after the other, since each keeps all
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
