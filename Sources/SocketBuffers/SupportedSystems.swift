// All other targets build after this one, so this is the first error of a build on another system than Linux.
#if !os(Linux)
#error("AsyncSockets is for Linux: Debian 12, Debian 13 or Ubuntu 24.04, with Swift 6.2 or newer")
#endif
