import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Environments that lack something, as in containers and under system call filters. The article
/// `Deployment` has a row for each test.
@Suite(.timeLimit(.patient), .unmodifiedKernel) struct EnvironmentTests {
    private static let parts = ["streams", "file", "unix", "datagrams", "dtls", "interfaces"]
    private static let works = parts.map { "\($0): works" }

    /// Runs `EngineProbe environment` with `arguments` after shell commands, and returns its lines.
    private func lines(
        _ arguments: [String], after commands: String = "", isIsolated: Bool = false
    ) async throws -> [String] {
        // The exit status reveals a crash. Swift's backtrace program hangs under a filter.
        let script = "export SWIFT_BACKTRACE=enable=no\n\(commands)\nexec \"$0\" environment \"$@\""
        let (status, output) =
            isIsolated
            ? try await ProbeProcess.run(arguments, script: "ip link set lo up\n" + script, hasOwnMounts: true)
            : try await ProbeProcess.shell(script, arguments)
        #expect(status == 0, "\(output)")
        return output.split(separator: "\n").map(String.init)
    }

    /// Returns the result of a part. Log lines may precede it.
    private func result(_ part: String, _ lines: [String]) throws -> String {
        let line = try #require(lines.first { $0.hasPrefix("\(part): ") }, "\(lines)")
        return String(line.dropFirst(part.count + 2))
    }

    /// Shell commands that pin the shell and its children to its first processor.
    private static let onOneProcessor = """
        first=$(taskset -pc $$ | sed 's/.*: //; s/[^0-9].*//')
        taskset -pc $first $$ >/dev/null
        "$0" processors
        """

    @Test func everythingWorksOnOneProcessor() async throws {
        #expect(try await lines(Self.parts, after: Self.onOneProcessor) == ["1"] + Self.works)
    }

    @Test(.controlGroups) func everythingWorksWithHalfAProcessor() async throws {
        let commands = HalfAProcessor.running(#""$0" processors && exec "$0" environment "$@""#)
        #expect(try await lines(Self.parts, after: commands) == ["1"] + Self.works)
    }

    // MARK: - IPv6

    private static let overIPv6 = ["ipv6", "ipv6-listener", "ipv6-datagrams"]

    /// As on a kernel that was started with `ipv6.disable=1`.
    @Test func aKernelWithoutIPv6IsEnough() async throws {
        let lines = try await lines(["ipv6=\(EAFNOSUPPORT)"] + Self.parts + Self.overIPv6)
        #expect(lines.prefix(Self.parts.count) == Self.works[...])
        for part in Self.overIPv6 {
            #expect(try result(part, lines).contains("address family not supported by protocol"))
        }
    }

    @Test(.ownNamespaces) func aMachineWithoutIPv6AddressesIsEnough() async throws {
        let lines = try await lines(
            Self.parts + Self.overIPv6, after: "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6", isIsolated: true)
        #expect(lines.prefix(Self.parts.count) == Self.works[...])
        for part in Self.overIPv6 { #expect(try result(part, lines).contains("[::1]:")) }
        for part in Self.overIPv6 { #expect(try result(part, lines).contains("cannot assign requested address")) }
    }

    // MARK: - Files

    @Test(.ownNamespaces) func anErrorNamesTheMissingAuthoritiesOfTheSystem() async throws {
        let commands = "mount -t tmpfs none /etc/ssl/certs; unset SSL_CERT_FILE SSL_CERT_DIR"
        let lines = try await lines(["streams", "system-roots"], after: commands, isIsolated: true)
        #expect(try result("streams", lines) == "works")
        #expect(try result("system-roots", lines).contains(": this system has no trusted authorities (\"/"))
        #expect(try result("system-roots", lines).contains(", so install ca-certificates or set trustRoots ["))
        let folder = commands + "; touch /etc/ssl/certs/01234567.0"
        let others = try await self.lines(["system-roots"], after: folder, isIsolated: true)
        #expect(try !result("system-roots", others).contains("no trusted authorities"))
    }

    /// The system has no file of authorities, so that the message depends on the folder.
    @Test(.ownNamespaces) func anErrorNamesTheFolderThatTheEnvironmentNamesInVain() async throws {
        let commands = "mount -t tmpfs none /etc/ssl/certs; unset SSL_CERT_FILE; export SSL_CERT_DIR=/nowhere:/mnt/none"
        let lines = try await lines(["system-roots"], after: commands, isIsolated: true)
        let message = ": SSL_CERT_DIR names \"/nowhere:/mnt/none\", where no certificates can be read ["
        #expect(try result("system-roots", lines).contains(message))
    }

    @Test(.ownNamespaces) func aReadOnlyFileSystemIsEnough() async throws {
        let commands = "mount -t tmpfs none /mnt; mount -o remount,bind,ro /"
        let usual = try await lines(Self.parts, after: commands + "; export TMPDIR=/mnt", isIsolated: true)
        #expect(usual == Self.works)
        let refused = try await lines(["unix", "key-log"], after: commands + "; export TMPDIR=/etc", isIsolated: true)
        #expect(try result("unix", refused).hasPrefix("listen: unix:/etc/environment-"))
        #expect(try result("unix", refused).contains(": read-only file system"))
        #expect(try result("key-log", refused).contains("\"/key.log\" (keyLogFile) cannot be opened: Read-only file system"))
    }

    // MARK: - Limits and filters

    /// On one processor, 28 must be enough: with two processors, the second event loop needs 4 more. See
    /// `ProbeTests` for listeners and loops that have no free descriptor.
    @Test func thirtyTwoDescriptorsAreEnoughForAFewConnections() async throws {
        #expect(try await lines(Self.parts, after: Self.onOneProcessor + "\nulimit -n 28") == ["1"] + Self.works)
    }

    /// Filters return one of these errors for calls that they do not permit.
    @Test(arguments: [ENOSYS, EPERM], ["newer", "sendmmsg", "offload", "sendfile"])
    func optionalSystemCallsMayBeRefused(errno: Int32, calls: String) async throws {
        #expect(try await lines(["\(calls)=\(errno)"] + Self.parts) == Self.works)
    }

    /// As with `RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX` in a unit of systemd.
    @Test func onlyNamesOfInterfacesNeedTheKernelsList() async throws {
        let lines = try await lines(["netlink=\(EAFNOSUPPORT)", "interface-names"] + Self.parts)
        #expect(lines.dropFirst() == Self.works[...])
        #expect(try result("interface-names", lines).hasPrefix("listen: the network interfaces cannot be listed: "))
    }

    /// Metadata of datagrams, and path MTU discovery.
    @Test(arguments: [
        IP_PKTINFO, IP_RECVTOS, IPV6_RECVTCLASS, SO_RXQ_OVFL, IP_RECVERR, IPV6_RECVERR, IP_MTU_DISCOVER, IPV6_MTU_DISCOVER,
        TCP_NODELAY,
    ]) func optionalSocketOptionsMayBeRefused(option: CInt) async throws {
        for errno in [ENOPROTOOPT, EPERM] { #expect(try await lines(["\(option)=\(errno)"] + Self.parts) == Self.works) }
    }

    /// Otherwise the socket would receive the datagrams of groups that other programs have joined.
    @Test func theIsolationFromOtherGroupsMayNotBeRefused() async throws {
        let lines = try await lines(["\(IP_MULTICAST_ALL)=\(EPERM)", "datagrams"])
        #expect(try result("datagrams", lines).hasPrefix("bind: setsockopt(IP_MULTICAST_ALL): operation not permitted"))
    }

    /// See `ProbeTests.aCallThatIsRefusedEndsItsSocket` for the other errors.
    @Test func anErrorNamesTheMissingCallForDatagrams() async throws {
        let lines = try await lines(["recvmmsg=\(ENOSYS)"] + Self.parts)
        for part in ["streams", "file", "unix"] { #expect(try result(part, lines) == "works") }
        for part in ["datagrams", "dtls"] {
            #expect(try result(part, lines).hasPrefix("receive: recvmmsg: function not implemented"))
        }
    }

    @Test(arguments: [ENOSYS, EPERM]) func anErrorNamesTheMissingEntropy(errno: Int32) async throws {
        let lines = try await lines(["getrandom=\(errno)", "client"])
        #expect(try result("client", lines).contains("error retrieving entropy"))
    }
}
