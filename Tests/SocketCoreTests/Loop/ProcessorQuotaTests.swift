import SocketCore
import Testing

/// The quotas of control groups, read from files like those of machines and containers.
@Suite struct ProcessorQuotaTests {
    /// The control group files of a machine.
    struct Machine: CustomTestStringConvertible, Sendable {
        let testDescription: String
        var groups: String
        var mounts: String
        var files: [String: String]
        let expected: Double?

        var quota: ProcessorQuota {
            var all = files
            all["/proc/self/cgroup"] = groups
            all["/proc/self/mountinfo"] = mounts
            return ProcessorQuota { all[$0] }
        }
    }

    private static let unified = "26 23 0:22 / /sys/fs/cgroup rw,nosuid,nodev,noexec - cgroup2 cgroup2 rw,nsdelegate\n"
    private static let older = """
        25 18 0:22 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
        31 25 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
        32 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
        33 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw

        """

    static let machines = [
        Machine(
            testDescription: "no limit", groups: "0::/user.slice\n", mounts: unified,
            files: ["/sys/fs/cgroup/user.slice/cpu.max": "max 100000\n"], expected: nil),
        Machine(
            testDescription: "half a processor", groups: "0::/system.slice/web.service\n", mounts: unified,
            files: ["/sys/fs/cgroup/system.slice/web.service/cpu.max": "50000 100000\n"], expected: 0.5),
        Machine(
            testDescription: "an ancestor has less", groups: "0::/a/b/c\n", mounts: unified,
            files: [
                "/sys/fs/cgroup/a/b/c/cpu.max": "400000 100000\n", "/sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "/sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            ], expected: 1.5),
        Machine(
            testDescription: "a name with CR at the end", groups: "0::/a\r\n", mounts: unified,
            files: ["/sys/fs/cgroup/a\r/cpu.max": "50000 100000\n"], expected: 0.5),
        Machine(
            testDescription: "a container with a namespace of groups", groups: "0::/\n", mounts: unified,
            files: ["/sys/fs/cgroup/cpu.max": "20000 10000\n"], expected: 2),
        Machine(
            testDescription: "a group outside of the namespace", groups: "0::/../other\n", mounts: unified,
            files: ["/sys/fs/cgroup/cpu.max": "300000 100000\n", "/sys/fs/cgroup/../other/cpu.max": "1 1000\n"], expected: 3),
        Machine(
            testDescription: "a mount point with a space", groups: "0::/a\n",
            mounts: #"26 23 0:22 / /sys/fs/control\040groups rw - cgroup2 cgroup2 rw"#,
            files: ["/sys/fs/control groups/a/cpu.max": "50000 100000\n"], expected: 0.5),
        Machine(
            testDescription: "version 1", groups: "3:cpuset:/x\n4:cpu,cpuacct:/docker/abc\n0::/docker/abc\n", mounts: older,
            files: [
                "/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "250000\n",
                "/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
                "/sys/fs/cgroup/cpuset/x/cpu.cfs_quota_us": "1000\n", "/sys/fs/cgroup/cpuset/x/cpu.cfs_period_us": "100000\n",
            ], expected: 2.5),
        Machine(
            testDescription: "version 1 without a limit", groups: "4:cpu,cpuacct:/\n", mounts: older,
            files: [
                "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            ], expected: nil),
        Machine(
            testDescription: "version 1 in a container that mounts its own group", groups: "4:cpu,cpuacct:/docker/abc\n",
            mounts: "32 25 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
            files: [
                "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "100000\n",
                "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            ], expected: 1),
        Machine(testDescription: "no files at all", groups: "", mounts: "", files: [:], expected: nil),
        Machine(
            testDescription: "files with something else in them", groups: "0::/a\nx\n::\n", mounts: unified + "- - -\ncgroup2\n",
            files: ["/sys/fs/cgroup/a/cpu.max": "0 0\n", "/sys/fs/cgroup/cpu.max": "half\n"], expected: nil),
    ]

    @Test(arguments: machines) func theSmallestShareOfTheGroupsCounts(_ machine: Machine) {
        #expect(machine.quota.processors == machine.expected)
    }

    @Test(arguments: [
        ("max 100000", 4, 4), ("50000 100000", 4, 1), ("100000 100000", 4, 1), ("100001 100000", 4, 2), ("1000 100000", 4, 1),
        ("390000 100000", 4, 4), ("800000 100000", 4, 4), ("max 100000", 0, 1),
    ])
    func aQuotaIsRoundedUpAndBoundedByTheProcessors(_ text: String, _ usable: Int, _ expected: Int) {
        let machine = Machine(
            testDescription: text, groups: "0::/\n", mounts: Self.unified, files: ["/sys/fs/cgroup/cpu.max": text], expected: nil)
        #expect(machine.quota.threadCount(usable: usable) == expected)
    }
}
