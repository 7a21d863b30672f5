# Functions shared by the checks, which start programs, send them lines and compare their output. Sourced by
# Scripts/checks/examples.
#
# A check is a function named check_… in a file in this folder. It stops the programs that it starts, and
# calls `fail` to stop the script.
checks=$PWD/Examples/Checks
servers=$PWD/Tests/Servers
scratch=$(mktemp -d)
chmod 711 "$scratch" # postfix and postgres switch to their own users
declare -A pid in out
trap 'finish' EXIT

# The environment for a client that trusts the CA of the certificates.
trusting=(env "SSL_CERT_FILE=$scratch/ca.pem")

fail() {
    echo "examples: $1" >&2
    [ ! -s "$scratch/log" ] || { echo "the last lines that the programs printed:" >&2; tail -n 20 "$scratch/log" >&2; }
    exit 1
}

finish() {
    local status=$? name
    for name in "${!pid[@]}"; do kill "${pid[$name]}" 2>/dev/null || true; done
    wait
    rm -rf "$scratch"
    exit $status
}

# begin <name> <program> …: starts the program in the scratch folder. `say` writes to its input, and `expect`
# reads its output.
begin() {
    local name=$1 descriptor
    shift
    rm -f "$scratch/$name".{in,out}
    mkfifo -m 666 "$scratch/$name.in" "$scratch/$name.out"
    exec {descriptor}<>"$scratch/$name.in"
    in[$name]=$descriptor
    (cd "$scratch" && exec "$@") <"$scratch/$name.in" >"$scratch/$name.out" 2>&1 &
    pid[$name]=$!
    exec {descriptor}<"$scratch/$name.out"
    out[$name]=$descriptor
}

# say <name> <line>
say() {
    printf '%s\n' "$2" >&"${in[$1]}"
}

# expect <name> <pattern>: waits for a line that matches, and stores its groups in BASH_REMATCH.
expect() {
    local line
    while IFS= read -r -t 30 -u "${out[$1]}" line; do
        echo "$1: $line" >>"$scratch/log"
        [[ $line =~ $2 ]] && return
    done
    fail "$1 did not print: $2"
}

# ended <name> <status>: waits until the program exits, and checks its status.
ended() {
    local line result=0 status=0
    while IFS= read -r -t 30 -u "${out[$1]}" line || { result=$? && false; }; do echo "$1: $line" >>"$scratch/log"; done
    [ "$result" -le 128 ] || fail "$1 did not exit"
    wait "${pid[$1]}" || status=$?
    [ "$status" -eq "$2" ] || fail "$1 exited with status $status instead of $2"
    unset "pid[$1]"
}

# stop <name> …: kills programs whose exit status does not matter.
stop() {
    local name
    for name in "$@"; do
        kill "${pid[$name]}" 2>/dev/null || true
        wait "${pid[$name]}" 2>/dev/null || true
        unset "pid[$name]"
    done
}

# printed <status> <file> <program> …: runs the program, writes its output to the file, and checks its status.
printed() {
    local expected=$1 file=$scratch/$2 status=0
    shift 2
    timeout 60 "$@" >"$file" 2>&1 || status=$?
    cat "$file" >>"$scratch/log"
    [ "$status" -eq "$expected" ] || fail "$* exited with status $status instead of $expected"
}

# said <file> <pattern> <program> …: runs a program that fails. Its last line must match "failed: " and the
# pattern.
said() {
    local file=$1 pattern=$2
    shift 2
    printed 1 "$file" "$@"
    grep -qE -- "^failed: .*$pattern" "$scratch/$file" || fail "$* did not print a reason that matches: $pattern"
    [ "$(sed -n '/^failed: /,$p' "$scratch/$file" | wc -l)" -eq 1 ] || fail "$* printed more than one line as the reason"
}

# contains <file> <pattern>
contains() {
    grep -q -- "$2" "$scratch/$1" || fail "the output \"$1\" does not contain: $2"
}

# listens <port>: whether a program accepts connections on the port of 127.0.0.1.
listens() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# until_received <port>: waits until a program receives UDP on the port of 127.0.0.1.
until_received() {
    for _ in {1..300}; do
        ! grep -q "0100007F:$(printf '%04X' "$1") " /proc/net/udp || return 0
        sleep 0.1
    done
    fail "no program receives on port $1"
}

# Prints an unused port on 127.0.0.1 below the range that the kernel assigns.
free_port() {
    local port
    for _ in {1..100}; do
        port=$((20000 + RANDOM % 10000))
        listens "$port" || { echo "$port" && return; }
    done
    fail "no port is free"
}

# visit <name> <port> <certificate or -> <options>: connects openssl s_client to one of our servers,
# optionally with a client certificate.
visit() {
    local identity=()
    [ "$3" = - ] || identity=(-cert "$3.pem" -key "$3.key")
    begin "$1" openssl s_client -connect "127.0.0.1:$2" -servername localhost -CAfile ca.pem -verify_return_error -quiet \
        "${identity[@]}" "${@:4}"
}

# memory <name>: prints the peak memory of the program, in KiB.
memory() {
    awk '/^VmHWM/ { print $2 }' "/proc/${pid[$1]}/status"
}
