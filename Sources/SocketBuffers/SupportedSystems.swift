// All other targets build after this one, so this is the first error of a build on another system than Linux.
#if !os(Linux)
#error("AsyncSockets is for Linux; README.md names the systems that it is tested on")
#endif
