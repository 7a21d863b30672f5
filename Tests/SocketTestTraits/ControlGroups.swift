import Foundation
package import Testing

extension Trait where Self == ConditionTrait {
    /// Skips a test where this process cannot limit its processor time, as in most containers.
    package static var controlGroups: Self {
        .enabled(if: HalfAProcessor.isAvailable, "this system does not allow control groups with a quota of processor time")
    }
}

/// A control group with a quota of half a processor.
package enum HalfAProcessor {
    /// Shell commands that create the group, run `commands` in it, and exit with their status.
    package static func running(_ commands: String) -> String {
        """
        for folder in /sys/fs/cgroup /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct; do
            group=$folder/half-a-processor-$$
            mkdir $group 2>/dev/null || continue
            if [ -e $group/cpu.cfs_quota_us ]; then echo 50000 >$group/cpu.cfs_quota_us
            elif [ -e $group/cpu.max ]; then echo '50000 100000' >$group/cpu.max
            else rmdir $group; continue
            fi && (echo 0 >$group/cgroup.procs && \(commands))
            status=$?
            rmdir $group
            exit $status
        done
        exit 1
        """
    }

    fileprivate static var isAvailable: Bool {
        let process = Process()
        process.executableURL = URL(filePath: "/bin/sh")
        process.arguments = ["-c", running("true")]
        process.standardError = FileHandle.nullDevice
        do { try process.run() } catch { return false }
        process.waitUntilExit()
        return process.terminationStatus == 0
    }
}
