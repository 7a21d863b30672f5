// This target is built first, so this is the first error reported on systems other than Linux.
#if !os(Linux)
#error("AsyncSockets supports only Linux: README.md lists the tested systems")
#endif
