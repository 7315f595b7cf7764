// Package embedded runs a PostgreSQL of its own, for when no database is configured.
//
// It uses server binaries that are installed, else downloads them once. The data is kept in a folder
// that the log names, one subfolder for each major version:
//
//	DataDir/15/data         the cluster
//	DataDir/15/server.log   what PostgreSQL logs (and server.log.1, the one before)
//	DataDir/15/server.lock  locked by the server for as long as any process of it lives
//
// The server listens on a Unix socket alone, which its own user and root may connect to. It survives
// nobody: Stop stops it, and so does the end of this process, however it ends. On Linux the kernel
// sees to that (the parent death signal); elsewhere a small shell does, which waits for a pipe of
// this process to close. Durability is PostgreSQL's own, unless Unsafe is asked for: what was
// committed survives a kill -9 of everything, and a power cut.
//
// Who runs the server of a folder is decided by server.lock and not by postmaster.pid, which lies
// after a crash when its number has been given to another process: the lock is an open file of the
// server's, so the kernel drops it with the last of the server's processes. Whoever gets the lock may
// remove a postmaster.pid and start; whoever does not get it connects to the server that is there.
//
// PostgreSQL refuses to run as root. When this process is root, the server runs as the user postgres,
// else nobody, and owns its folder.
package embedded
