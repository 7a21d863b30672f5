# Functions shared by the checks in this folder. Sourced by Scripts/checks/world.
#
# A check is a function named check_… that starts a program, connects sockcat to it, and stops it. The functions
# `begin`, `say`, `expect`, `stop` and `printed` are shared with the checks of the examples.
source Examples/Checks/harness.bash

world=$PWD/Tools/sockcat/World
# Most servers read their files as their own users.
chmod 755 "$scratch"

fail() {
    echo "world: $1" >&2
    [ ! -s "$scratch/log" ] || { echo "the last lines that the programs printed:" >&2; tail -n 20 "$scratch/log" >&2; }
    exit 1
}

# issue_certificates: creates an authority, its certificates for the server and for the client alice, and an
# unrelated authority.
issue_certificates() {
    printed 0 certificates "$sockcat" certificate authority
    printed 0 certificates "$sockcat" certificate server localhost 127.0.0.1 ::1 example.org --output-name server
    printed 0 certificates "$sockcat" certificate client alice
    printed 0 certificates "$sockcat" certificate authority --directory stranger
    # These files limit the version of TLS in servers that have no setting for it.
    for version in 1.2 1.3; do
        cat >"$scratch/openssl-$version.cnf" <<END
openssl_conf = all
[all]
ssl_conf = ssl
[ssl]
system_default = limits
[limits]
MaxProtocol = TLSv$version
END
    done
}

# folder <name> [<user>]: creates a folder for a server, with copies of the certificates that belong to the user.
# Prints the path.
folder() {
    local folder=$scratch/$1 user=${2:-root}
    install -d -m 755 -o "$user" "$folder"
    install -m 644 "$scratch"/{ca,server}.pem "$folder"
    install -m 600 -o "$user" "$scratch/server-key.pem" "$folder"
    echo "$folder"
}

# become <user>: sets `as` to the start of a command line that runs a program as the user.
become() {
    as=(setpriv --reuid="$1" --regid="$1" --clear-groups env HOME="$scratch")
}

# until_listening <name> <port>: waits until the program accepts connections.
until_listening() {
    local program=${pid[$1]}
    for _ in {1..300}; do
        ! listens "$2" || return 0
        kill -0 "$program" 2>/dev/null || fail "$1 exited"
        sleep 0.1
    done
    fail "$1 does not listen on port $2"
}

# start <name> <port> <program> …: starts a server whose output is written to the file NAME.log, and waits until it
# accepts connections.
start() {
    local name=$1 port=$2
    shift 2
    (cd "$scratch" && exec "$@") </dev/null >"$scratch/$name.log" 2>&1 &
    pid[$name]=$!
    until_listening "$name" "$port"
}

# logged <name> <pattern>: waits until the server has logged a line that matches.
logged() {
    for _ in {1..100}; do
        ! grep -aqE -- "$2" "$scratch/$1.log" || return 0
        sleep 0.1
    done
    tail -n 20 "$scratch/$1.log" >>"$scratch/log"
    fail "$1 did not log: $2"
}

# The port of the server under test, sockcat's options for starting TLS, the version that the server must negotiate,
# and sockcat's exit status after a conversation.
port=0 upgrade=() version=1.3 ending=0
client_certificate=(--cert alice.pem --key alice-key.pem)

# ran <fact>: adds a fact to the line that is printed at the end of the check.
ran() {
    [[ ", $did, " == *", $1, "* ]] || did+=${did:+, }$1
}

# client <status> <option> …: runs `sockcat connect`, and checks the exit status. The replies of the server and
# sockcat's messages are written to the file "reply".
client() {
    local status=$1
    shift
    printed "$status" reply "$sockcat" connect --verbose --color never localhost "$port" "${upgrade[@]}" "$@"
}

# replied <pattern>: whether the file "reply" matches the pattern, a regular expression of Perl. "^" matches at the
# start of each line.
replied() {
    perl -0777 -ne 'BEGIN { $pattern = shift } exit !/$pattern/m' -- "$1" "$scratch/reply"
}

# converse <request> <pattern> [<option> …]: sends the request, which is a format for printf, over TLS. The replies
# must match the pattern. The last command of the request must make the server close the connection.
converse() {
    local request=$1 pattern=$2
    shift 2
    # shellcheck disable=SC2059 # The request is a format.
    printf "$request" >"$scratch/request"
    client "$ending" --ca ca.pem --no-half-close "$@" <"$scratch/request"
    replied "secure: D?TLSv$version" || fail "${upgrade[*]} did not negotiate TLS $version"
    replied "$pattern" || fail "${upgrade[*]}: the replies do not match: $pattern"
    ran "TLS $version"
    [[ " $* " != *" --cert "* ]] || ran "client certificate"
}

# denied <status> <pattern> [<option> …]: sockcat must fail with the status and with a message that matches the
# pattern.
denied() {
    client "$1" --ca ca.pem --no-half-close "${@:3}" </dev/null
    replied "sockcat: .*($2)" || fail "${upgrade[*]}: the error does not match: $2"
}

# needs_certificate: the server must reject a client without a certificate.
needs_certificate() {
    denied 3 'handshake_failure|certificate_required|bad_certificate'
    ran "client certificate required"
}

# distrusted: sockcat must reject the server's certificate before it reads its input, if only the unrelated authority
# is trusted.
distrusted() {
    local rest
    echo secret >"$scratch/request"
    { client 4 --ca stranger/ca.pem && rest=$(cat); } <"$scratch/request"
    [ "$rest" = secret ] || fail "${upgrade[*]}: sockcat read its input although the server is not trusted"
    replied 'verification result (19|20)' || fail "${upgrade[*]}: the reason is not an unknown issuer"
    ran "unknown authority rejected"
}

# inspected: `sockcat inspect` must report the server's certificate and the version of TLS, and no errors.
inspected() {
    local inspection=("${upgrade[@]}")
    # `inspect` uses TLS from the first byte by default, and has no option for it.
    [ "${upgrade[*]}" != --tls ] || inspection=()
    printed 0 report "$sockcat" inspect localhost "$port" "${inspection[@]}" --ca ca.pem --json
    contains report '"subject":"CN=localhost"'
    contains report "\"version\":\"TLSv$version\""
    contains report '"status":"ok"'
    ran inspect
}

# not_offered <protocol> <port> [<option> …]: sockcat must report that the server does not offer TLS.
not_offered() {
    port=$2 upgrade=(--starttls "$1" "${@:3}")
    denied 3 'does not offer'
    ! replied 'secure: ' || fail "$1: sockcat started TLS"
    ran "server without TLS rejected"
}

# upgrading <protocol> <port> [<option> …]: selects a protocol and a port for the following functions, and performs
# the checks that are the same for all protocols.
upgrading() {
    port=$2 upgrade=(--starttls "$1" "${@:3}")
    ran "$1"
    distrusted
    inspected
}

# encrypting <port>: the same for TLS from the first byte.
encrypting() {
    port=$1 upgrade=(--tls)
    distrusted
    inspected
}
