// This target is built first, so on any other system than Linux this is the first error reported.
#if !os(Linux)
#error("AsyncSockets supports only Linux: README.md lists the tested systems")
#endif
