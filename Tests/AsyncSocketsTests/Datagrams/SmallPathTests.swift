import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// A path with a smaller MTU than the first link, as reported by a router.
@Suite(.timeLimit(.patient)) struct SmallPathTests {
    @Test func handshakesAndDatagramsFitThePathBehindARouter() async throws {
        let (status, text) = try await ProbeProcess.run(script: Self.script)
        #expect(status == 0 && text.contains("the path was found"), "\(text)")
    }

    /// Uses three network namespaces: this one for the client is connected to the router's, which is
    /// connected to the server's. The links' MTU is 1,500 bytes, and the router's routes have a smaller one.
    /// `sleep` keeps a namespace alive, and inherits blocked signals.
    private static let script = """
        hold() { unshare --net sleep 1200 >/dev/null 2>&1 & }
        hold; router=$!
        hold; other=$!
        folder=$(mktemp -d)
        trap 'kill -KILL $router $other $server; rm -rf $folder' EXIT
        for held in $router $other; do
            for _ in $(seq 100000); do
                [ "$(readlink /proc/$held/ns/net)" = "$(readlink /proc/$$/ns/net)" ] || break
            done
        done
        inside() { namespace=$1; shift; nsenter --target $namespace --net "$@"; }
        link='
            echo 0 > /proc/sys/net/ipv6/conf/$0/accept_dad
            for address in "$@"; do
                case $address in *:*) ip address add $address dev $0 nodad ;; *) ip address add $address dev $0 ;; esac
            done
            ip link set lo up
            ip link set $0 up'
        ip link add veth1 type veth peer name veth2
        ip link set veth2 netns $router
        inside $router ip link add veth3 type veth peer name veth4
        inside $router ip link set veth4 netns $other
        sh -ec "$link" veth1 192.0.2.1/24 192.0.2.3/24 2001:db8:1::1/64 2001:db8:1::3/64
        inside $router sh -ec "$link" veth2 192.0.2.254/24 2001:db8:1::fe/64
        inside $router sh -ec "$link" veth3 198.51.100.254/24 2001:db8:2::fe/64
        inside $other sh -ec "$link" veth4 198.51.100.2/24 198.51.100.3/24 2001:db8:2::2/64 2001:db8:2::3/64
        inside $router sh -ec '
            echo 1 > /proc/sys/net/ipv4/ip_forward
            echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
            ip route replace 192.0.2.0/24 dev veth2 mtu lock 600
            ip route replace 198.51.100.0/24 dev veth3 mtu lock 600
            ip -6 route add 2001:db8:1::/64 dev veth2 metric 1 mtu lock 1280
            ip -6 route add 2001:db8:2::/64 dev veth3 metric 1 mtu lock 1280'
        ip route add 198.51.100.0/24 via 192.0.2.254
        ip -6 route add 2001:db8:2::/64 via 2001:db8:1::fe
        inside $other ip route add 192.0.2.0/24 via 198.51.100.254
        inside $other ip -6 route add 2001:db8:1::/64 via 2001:db8:2::fe
        mkfifo $folder/ready
        nsenter --target $other --net "$0" path-server $folder > $folder/ready &
        server=$!
        read -r files < $folder/ready
        "$0" path-client $files
        """
}
