// Logs in to a PostgreSQL server with SCRAM-SHA-256-PLUS, which binds the login to the TLS connection like
// psql's channel_binding=require. Prints the TLS version that the server reports.
//
//     swift run --package-path Examples postgres-login db.example.org 5432 alice postgres <password.txt
//
// The password is the first line of standard input. To trust a CA of your own, set SSL_CERT_FILE=ca.pem in
// the environment.

import AsyncSockets
import Foundation

@main
struct PostgresLogin {
    static func main() async {
        let arguments = CommandLine.arguments
        guard arguments.count == 5, let port = UInt16(arguments[2]), let password = readLine() else {
            complain("usage: postgres-login HOST PORT USER DATABASE <PASSWORD")
            exit(EX_USAGE)
        }
        do {
            try await AsyncSocket.withConnection(to: arguments[1], port: port) { socket in
                let session = PostgresSession(socket: socket)
                try await withDeadline(.seconds(60)) {
                    try await socket.startTLS(as: .postgres, settings: .client(serverName: arguments[1]))
                    try await session.logIn(as: arguments[3], to: arguments[4], password: password)
                    let version = try await session.value(
                        of: "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
                    print("logged in as \(arguments[3]), over \(version ?? "nothing")")
                    try await session.terminate()
                }
            }
        } catch {
            complain("\(error)")
            exit(EXIT_FAILURE)
        }
    }

    private static func complain(_ message: String) {
        FileHandle.standardError.write(Data("postgres-login: \(message)\n".utf8))
    }
}
