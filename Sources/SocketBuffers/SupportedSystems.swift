// Here, since all other targets are built behind this one: elsewhere than on Linux this is the first thing
// that a build says.
#if !os(Linux)
#error("AsyncSockets is for Linux: Debian 12, Debian 13 or Ubuntu 24.04, with Swift 6.2 or newer")
#endif
