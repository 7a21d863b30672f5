import Dispatch
import SockcatCommands

// The first `await` at the top level would open descriptors before any other code runs.
Sockcat.reserveStandardDescriptors()
let end = DispatchSemaphore(value: 0)
Task.detached {
    await Sockcat.start()
    end.signal()
}
end.wait()
