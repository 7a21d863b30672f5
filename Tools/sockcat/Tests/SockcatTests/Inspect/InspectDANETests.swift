import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// `sockcat inspect` with TLSA records, against real servers and a resolver with a fixed zone.
@Suite(.timeLimit(.minutes(5))) struct InspectDANETests {
    let folder: TestFolder
    private let record: TLSARecord
    private let identity: TLSIdentity

    init() throws {
        folder = try TestFolder()
        let authority = try CertificateAuthority()
        let server = try folder.issue(.server(names: ["localhost"]), by: authority, to: "server")
        let key = try TLSCertificate(pem: server.certificatePEM).publicKeySHA256
        record = TLSARecord(usage: .daneEE, selector: .publicKey, matchingType: .sha256, data: key)
        try folder.issue(.client(commonName: "ada"), by: authority, to: "ada")
        identity = try TLSIdentity(
            certificateFile: folder.path("ada.pem"), privateKeyFile: folder.path("ada.key"))
    }

    /// - Returns: The report, and what the server printed, which includes the subject of the client.
    private func inspect(
        _ choices: InspectionChoices, _ origin: ServerOrigin? = nil, server options: String = "-verify 1 -CAfile ca.pem",
        zone: (inout TestZone, UInt16) -> Void = { _, _ in }
    ) async throws -> (report: InspectionReport, server: String) {
        var choices = choices
        (choices.trustRoots, choices.probes) = (.file(path: folder.path("ca.pem")), false)
        choices.timeout = .seconds(60)
        let server = try await OpenSSLServer(options, in: folder)
        var contents = TestZone()
        contents.add(.a, "localhost", [127, 0, 0, 1])
        zone(&contents, UInt16(server.port))
        let target = ServerTarget(endpoint: .host("localhost", port: UInt16(server.port)), origin: origin)
        let report = try await ServerInspector.inspect(target, choices, resolver: contents.resolver)
        return (report, try await server.stop())
    }

    // MARK: - The client's certificate

    enum Evidence: CaseIterable { case lookUpFailed, missing, unsigned }

    /// A trusted authority does not replace the records that the user requires.
    @Test(arguments: Evidence.allCases)
    func aServerWithoutRequiredRecordsGetsNoCertificate(evidence: Evidence) async throws {
        let result = try await inspect(InspectionChoices(identity: identity, dane: .lookUp)) { zone, port in
            switch evidence {
            case .lookUpFailed: zone.fail(.tlsa, "_\(port)._tcp.localhost")
            case .missing: break
            case .unsigned: zone.unsign(.a, "localhost")
            }
        }
        #expect(!result.server.contains("ada"), "\(result.server)")
        #expect(result.report.clientCertificate?.presentation == .withheld)
        #expect(result.report.session?.isTrusted == false && result.report.status == .untrusted)
        #expect(result.report.certificates.count == 2)
    }

    @Test func aMailServerWithAFailedLookUpGetsNoCertificate() async throws {
        let origin = ServerOrigin(try DNSName("example.org"), .mailExchanger(preference: 10), true)
        let failed = try await inspect(InspectionChoices(identity: identity), origin) { $0.fail(.tlsa, "_\($1)._tcp.localhost") }
        #expect(!failed.server.contains("ada") && failed.report.clientCertificate?.presentation == .withheld)
        let absent = try await inspect(InspectionChoices(identity: identity), origin)
        #expect(absent.server.contains("ada") && absent.report.clientCertificate?.presentation == .accepted)
    }

    @Test func aServerThatMatchesGetsTheCertificate() async throws {
        let result = try await inspect(InspectionChoices(identity: identity, dane: .lookUp)) { zone, port in
            zone.add(.tlsa, "_\(port)._tcp.localhost", TestZone.tlsa(record))
        }
        #expect(result.server.contains("ada") && result.report.dane?.status == .matched)
    }

    // MARK: - Faults that are not those of the records

    @Test func aMissingPinIsNoFaultOfTheRecords() async throws {
        let pins: Set = [[UInt8](repeating: 7, count: 32)]
        for identity in [nil, identity] {
            let result = try await inspect(InspectionChoices(identity: identity, pins: pins, dane: .records([record])))
            #expect(result.report.dane?.status == .matched)
            #expect(result.report.problems.filter { $0.severity == .error }.map(\.code) == [.pinMismatch])
            #expect(!result.server.contains("ada") && result.report.status == .untrusted)
        }
    }

    /// The server staples a response that does not belong to its certificate.
    @Test func aRejectedResponseIsNoFaultOfTheRecords() async throws {
        let made = try await SockcatProcess.shell(
            """
            sockcat certificate authority --force && sockcat certificate server localhost --force &&
            cp localhost.pem server.pem && cp localhost-key.pem server.key &&
            serial=$(openssl x509 -in server.pem -noout -serial | cut -d= -f2) &&
            printf 'R\t491231235959Z\t261127000000Z\t%s\tunknown\t/CN=localhost\n' $serial > index &&
            openssl ocsp -index index -CA ca.pem -rsigner ca.pem -rkey ca-key.pem -issuer ca.pem -cert server.pem \
            -ndays 3 -respout response
            """, in: folder)
        #expect(made.status == 0, "\(made.errors)")
        let certificate = try TLSCertificate.certificates(file: folder.path("server.pem"))[0]
        let record = TLSARecord(
            usage: .pkixEE, selector: .publicKey, matchingType: .sha256, data: certificate.publicKeySHA256)
        for identity in [nil, identity] {
            let choices = InspectionChoices(identity: identity, dane: .records([record]))
            let result = try await inspect(choices, server: "-verify 1 -CAfile ca.pem -status_file response")
            #expect(result.report.dane?.status == .matched && result.report.session?.isTrusted == false)
            #expect(result.report.problems.filter { $0.severity == .error }.map(\.code) == [.revoked])
            #expect(!result.server.contains("ada"))
        }
    }

    // MARK: - Many targets

    @Test func anAddressDoesNotStopTheOthers() async throws {
        let server = try await SockcatServer("listen --echo --tls --cert server.pem --key server.key 127.0.0.1:0", in: folder)
        try folder.write("127.0.0.1:\(server.port)\n127.0.0.1:1\n", to: "hosts")
        let outcome = try await SockcatProcess.run("inspect --no-probes --dane --ca ca.pem --hosts hosts", in: folder)
        await server.stop()
        #expect(outcome.status == ExitStatus.connectFailed.rawValue, "\(outcome)")
        #expect(outcome.output.contains("TLSA records belong to a host name, and \"127.0.0.1\" is not a host name"))
        #expect(outcome.output.contains("127.0.0.1:1\n"))
    }

    @Test func watchedServersAreKeptForEachDomain() throws {
        func report(_ domain: String?, _ target: String) -> InspectionReport {
            var report = InspectionReport(target: target, kind: .server, inspectedAt: Date(), status: .ok)
            report.origin = domain.map { OriginReport(domain: $0, record: "MX 10", isSigned: true) }
            return report
        }
        let all = [report("a.example", "mx:25"), report("b.example", "mx:25"), report(nil, "mx:25"), report(nil, "mx:25")]
        var history = ReportHistory()
        for report in all { #expect(history.replace(with: report) == nil) }
        history.endRound()
        for report in all { #expect(history.replace(with: report) == report) }
        history.endRound()
        #expect(history.replace(with: all[0]) == all[0])
        history.endRound()
        #expect(history.replace(with: all[1]) == nil, "the previous round did not contain it")
    }
}
