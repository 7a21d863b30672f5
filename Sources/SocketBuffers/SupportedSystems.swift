// This target is built first, so on any other system than Linux this is the first error reported.
#if !os(Linux)
#error("AsyncSockets is for Linux; README.md names the systems that it is tested on")
#endif
